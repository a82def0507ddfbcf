//! Serves one key at a time: its queue, the actor that serves the queue, attempts, contention, release and hand-off.
//!
//! ARCHITECTURE.md lists the files.

pub(crate) mod acquire;
pub(crate) mod actor;
pub(crate) mod attempt;
pub(crate) mod background;
pub(crate) mod busy;
pub(crate) mod callers;
pub(crate) mod claim;
pub(crate) mod contention;
mod crowd;
pub(crate) mod current;
pub(crate) mod direct;
mod grants;
mod hand_off;
pub(crate) mod key_actor;
pub(crate) mod key_queue;
pub(crate) mod level;
pub(crate) mod names;
pub(crate) mod permits;
pub(crate) mod pipelined;
pub(crate) mod queue_id;
mod readers;
pub(crate) mod release;
pub(crate) mod releases;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod single;
pub(crate) mod spared;
pub(crate) mod step;
pub(crate) mod unfinished;
pub(crate) mod waiters;
pub(crate) mod work;

use crate::config::options::Options;
use crate::connection::{Connection, Topology};
use crate::engine::session::Session;
use crate::error::Result;
use crate::runtime::sync::task::JoinHandle;
use std::sync::Arc;

/// Connects a client, and starts its tasks on the current runtime.
pub(crate) async fn connect(servers: Topology, options: Options) -> Result<Arc<Session>> {
    let connection = Connection::connect(&servers, &options).await?;
    Ok(serve(&servers, options, connection))
}

/// Starts the tasks of a client on the current runtime, which then connect.
pub(crate) fn start(servers: &Topology, options: Options) -> Result<Arc<Session>> {
    let connection = Connection::start(servers, &options)?;
    Ok(serve(servers, options, connection))
}

fn serve(servers: &Topology, options: Options, connection: (Connection, JoinHandle<()>)) -> Arc<Session> {
    let (session, unserved) = Session::start(servers, options, connection);
    session.spawn_essential(background::serve(unserved));
    if session.watchdog.names().is_registered() {
        session.spawn_essential(session.watchdog.names().clone().serve(session.connection.clone()));
    }
    session
}
