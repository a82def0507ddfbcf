//! Forms a cluster of running servers.

use crate::server::{Server, wait_until};

/// The number of slots of a cluster.
const SLOTS: u16 = 16384;

/// The first and last slot of the master `at` of `count`.
pub fn share(at: usize, count: usize) -> (u16, u16) {
    let [first, next] = [at, at + 1].map(|at| at * usize::from(SLOTS) / count);
    (first as u16, (next - 1) as u16)
}

/// Returns when all nodes know each other. `replicas` are those of the masters, in the same order.
pub fn join(masters: &[&Server], replicas: &[&Server]) -> Result<(), String> {
    for (at, master) in masters.iter().enumerate() {
        let (first, last) = share(at, masters.len());
        master.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
        // Two nodes must not start with the same epoch.
        master.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1))?;
    }
    let nodes = || masters.iter().chain(replicas);
    for other in nodes().skip(1) {
        masters[0].run(&format!("CLUSTER MEET 127.0.0.1 {}", other.port))?;
    }
    let known = format!("cluster_known_nodes:{}", nodes().count());
    wait_until("the nodes did not find each other in time", || {
        nodes().all(|node| node.query("CLUSTER INFO").concat().contains(&known))
    })?;
    for (replica, master) in replicas.iter().zip(masters) {
        replica.run(&format!("CLUSTER REPLICATE {}", master.query("CLUSTER MYID").concat()))?;
    }
    wait_until("the cluster did not form in time", || {
        nodes().all(|node| node.query("CLUSTER INFO").concat().contains("cluster_state:ok"))
    })
}
