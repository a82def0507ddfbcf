//! A master and its replica under sentinels.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Server, eventually};

/// The servers end when this is dropped.
pub struct Group {
    pub master: Server,
    pub replica: Server,
    pub sentinels: Vec<Server>,
}

impl Group {
    /// Returns once the sentinels know each other, and could promote the replica.
    pub fn start(sentinels: usize) -> Self {
        let master = Server::start();
        let replica = Server::replica_of(&master);
        let sentinels: Vec<_> =
            (0..sentinels).map(|_| Server::sentinel(&master, sentinels / 2 + 1)).collect();
        let group = Self { master, replica, sentinels };
        let others = (group.sentinels.len() - 1).to_string();
        let limit = Instant::now() + Duration::from_secs(20);
        for sentinel in &group.sentinels {
            let mut cli = sentinel.cli();
            let knows = |cli: &mut redis::Connection| {
                let known: HashMap<String, String> =
                    redis::cmd("SENTINEL").arg("MASTER").arg("orders").query(cli).unwrap();
                let replicas: Vec<HashMap<String, String>> =
                    redis::cmd("SENTINEL").arg("REPLICAS").arg("orders").query(cli).unwrap();
                // A replica has a run id once the sentinel has asked it. A sentinel promotes no other.
                let asked = replicas.iter().any(|replica| !replica["runid"].is_empty());
                asked && known["num-other-sentinels"] == others
            };
            while !knows(&mut cli) {
                assert!(Instant::now() < limit, "the sentinels do not find each other");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        group
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://{}/0#orders", self.hosts())
    }

    /// The address for a Java client.
    pub fn for_java(&self) -> String {
        format!("sentinel/orders/{}", self.hosts())
    }

    fn hosts(&self) -> String {
        self.sentinels.iter().map(Server::address).collect::<Vec<_>>().join(",")
    }

    /// Waits until the replica has become the master.
    pub async fn wait_for_promotion(&self) {
        // A promotion closes connections, so each query makes its own.
        let role = |server: &Server| -> redis::RedisResult<Vec<redis::Value>> {
            redis::cmd("ROLE").query(&mut redis::Client::open(server.url())?.get_connection()?)
        };
        eventually(|| {
            role(&self.replica).is_ok_and(|role| role[0] == redis::Value::BulkString(b"master".into()))
        })
        .await;
    }
}
