//! `latch`: a count-down latch.

use crate::args::{Connection, LatchCommand};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::output::write_out;

/// Runs the command.
pub async fn latch(command: LatchCommand, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| execute(client, command).await).await
}

async fn execute(client: &redisson_lock::Client, command: LatchCommand) -> Result<u8, Failure> {
    match command {
        LatchCommand::Create { name, count } => {
            if !client.count_down_latch(&name).try_set_count(count).await? {
                return Err(Failure::Busy(format!("the latch `{name}` exists: it is unchanged")));
            }
        }
        LatchCommand::CountDown { name } => client.count_down_latch(&name).count_down().await?,
        LatchCommand::Count { name } => {
            write_out(format!("{}\n", client.count_down_latch(&name).count().await?))?;
        }
        LatchCommand::Wait { name, wait: None } => client.count_down_latch(&name).wait().await?,
        LatchCommand::Wait { name, wait: Some(wait) } => {
            if !client.count_down_latch(&name).wait_for(wait).await? {
                return Err(Failure::Busy(format!(
                    "the latch `{name}` is still closed: wait longer with -w"
                )));
            }
        }
    }
    Ok(0)
}
