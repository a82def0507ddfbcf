//! The library's own scripts.

use std::fs;

use super::Server;

pub const ACQUIRE: &str = include_str!("../../../lua/lock_acquire.lua");
pub const RECOUNT: &str = include_str!("../../../lua/lock_recount.lua");
pub const RELEASE: &str = include_str!("../../../lua/lock_release.lua");
pub const MOVE: &str = include_str!("../../../lua/lock_hand_off.lua");
pub const RENEW: &str = include_str!("../../../lua/lock_renew.lua");
pub const COUNT_SUBSCRIPTIONS: &str = include_str!("../../../lua/count_subscriptions.lua");
pub const SEMAPHORE_ACQUIRE: &str = include_str!("../../../lua/semaphore_acquire.lua");
pub const SEMAPHORE_RELEASE: &str = include_str!("../../../lua/semaphore_release.lua");
pub const FAIR_ACQUIRE: &str = include_str!("../../../lua/fair_acquire.lua");
pub const FAIR_HAND_OFF: &str = include_str!("../../../lua/fair_hand_off.lua");
pub const FAIR_LEAVE: &str = include_str!("../../../lua/fair_leave.lua");
pub const VALUE_HAND_OFF: &str = include_str!("../../../lua/value_hand_off.lua");
pub const FORCE_UNLOCK: &str = include_str!("../../../lua/lock_force_unlock.lua");

/// Loads all scripts into the server, so that each call is one request.
pub fn load(server: &Server) {
    let mut cli = server.cli();
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).expect("the scripts exist") {
        let source = fs::read_to_string(file.expect("it exists").path()).expect("a script is text");
        redis::cmd("SCRIPT").arg("LOAD").arg(source).exec(&mut cli).expect("it is Lua");
    }
}
