//! Servers that are made a cluster.

use crate::server::{Server, until};

/// How many slots a cluster has.
const SLOTS: u16 = 16384;

/// The first slot and the last of one of so many masters.
pub fn share(at: usize, count: usize) -> (u16, u16) {
    let [first, next] = [at, at + 1].map(|at| at * usize::from(SLOTS) / count);
    (first as u16, (next - 1) as u16)
}

/// Ends when all know of all. The replicas are those of the masters, in their order.
pub fn join(masters: &[&Server], replicas: &[&Server]) -> Result<(), String> {
    for (at, master) in masters.iter().enumerate() {
        let (first, last) = share(at, masters.len());
        master.tell(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
        // So that no two begin with the same.
        master.tell(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1))?;
    }
    let nodes = || masters.iter().chain(replicas);
    for other in nodes().skip(1) {
        masters[0].tell(&format!("CLUSTER MEET 127.0.0.1 {}", other.port))?;
    }
    let known = format!("cluster_known_nodes:{}", nodes().count());
    until("the nodes do not find each other", || {
        nodes().all(|node| node.told("CLUSTER INFO").concat().contains(&known))
    })?;
    for (replica, master) in replicas.iter().zip(masters) {
        replica.tell(&format!("CLUSTER REPLICATE {}", master.told("CLUSTER MYID").concat()))?;
    }
    until("the cluster does not come to be", || {
        nodes().all(|node| node.told("CLUSTER INFO").concat().contains("cluster_state:ok"))
    })
}
