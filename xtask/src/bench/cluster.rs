//! Measures uncontended locks on one master and on clusters. Compares plain messages, which go to all nodes, with sharded
//! messages, which stay with the nodes of a slot. The clusters have no replicas, and the clients ask for none.

use super::Effort;
use super::report::{Table, Target};
use super::rounds::{ratio, rounds};
use super::sample::rate;
use super::testbed::Testbed;

const WORKERS: usize = 64;
const ONE: &str = "ours";
/// The number of masters, and the names of the clients with sharded and with plain messages.
const CLUSTERS: [(usize, [&str; 2]); 2] =
    [(3, ["3 masters, sharded", "3 masters, plain"]), (6, ["6 masters, sharded", "6 masters, plain"])];

pub fn run(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    let mut names = vec![ONE];
    for (masters, both) in CLUSTERS {
        testbed.add_cluster(masters, both)?;
        names.extend(both);
    }
    let measured = rounds(testbed, effort, "uncontended", &[WORKERS], &names)?;
    testbed.remove_clusters();
    let head =
        ["servers", "holds per second", "±", "client us per hold", "servers us per hold", "to one master"];
    let mut table = Table::new("holds per second", &head);
    let to_one = |name| ratio(&measured, WORKERS, (name, ONE), rate);
    for name in names {
        let samples = &measured[&(WORKERS, name)];
        let label = if name == ONE { "one master" } else { name };
        table.bar(&format!("{WORKERS}"), label, samples.median(rate));
        table.row(&[
            label.to_owned(),
            format!("{:.0}", samples.median(rate)),
            format!("{:.0} %", samples.figures(rate).spread() * 100.0),
            format!("{:.1}", samples.median(|s| s.per_hold("cpu")) * 1e6),
            format!("{:.1}", samples.median(|s| s.per_hold("server.cpu")) * 1e6),
            format!("{:.2}", to_one(name).median()),
        ]);
    }
    for (masters, [sharded, plain]) in CLUSTERS {
        let faster = ratio(&measured, WORKERS, (sharded, plain), rate);
        table.target(Target::least(format!("{masters} masters, sharded to plain"), 1.0, faster));
        let cheaper = ratio(&measured, WORKERS, (sharded, plain), |s| s.per_hold("server.cpu"));
        table.target(Target::most(
            format!("{masters} masters, servers' CPU per hold, sharded to plain"),
            1.0,
            cheaper,
        ));
    }
    Ok(table)
}
