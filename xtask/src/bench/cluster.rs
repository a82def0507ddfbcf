//! Locks that nobody contends for, at one master and spread over the masters of a cluster; and what the messages of their
//! releases cost there, which either go to all its nodes or stay with those of one slot. There are no replicas, and nobody asks
//! for them.

use super::Effort;
use super::report::{Table, Target};
use super::sample::rate;
use super::scenarios::{ratio, rounds};
use super::stage::Stage;

const WORKERS: usize = 64;
const ONE: &str = "ours";
/// How many masters, and what the cluster's client is called by whether messages are sharded.
const CLUSTERS: [(usize, [&str; 2]); 2] =
    [(3, ["3 masters, sharded", "3 masters, plain"]), (6, ["6 masters, sharded", "6 masters, plain"])];

pub fn run(stage: &mut Stage, effort: &Effort) -> Result<Table, String> {
    let mut names = vec![ONE];
    for (masters, both) in CLUSTERS {
        stage.add_cluster(masters, both)?;
        names.extend(both);
    }
    let measured = rounds(stage, effort, "uncontended", &[WORKERS], &names)?;
    stage.remove_clusters();
    let head = ["servers", "holds a second", "±", "client us a hold", "servers us a hold", "to one master"];
    let mut table = Table::new("holds a second", &head);
    let to_one = |name| ratio(&measured, WORKERS, (name, ONE), rate);
    for name in names {
        let samples = &measured[&(WORKERS, name)];
        let called = if name == ONE { "one master" } else { name };
        table.bar(&format!("{WORKERS}"), called, samples.median(rate));
        table.row(&[
            called.to_owned(),
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
            format!("{masters} masters, servers' CPU a hold, sharded to plain"),
            1.0,
            cheaper,
        ));
    }
    Ok(table)
}
