//! `latch`: a count-down latch.

use crate::args::{Connection, LatchCommand};
use crate::connect::connect;
use crate::failure::Failure;
use crate::run::close;
use crate::signals::{self, Signals};

/// Runs the command.
pub async fn latch(command: LatchCommand, connection: &Connection) -> Result<u8, Failure> {
    let mut signals = Signals::ending()?;
    let client = connect(connection).await?;
    let outcome = tokio::select! {
        biased;
        signal = signals.next() => Ok(signals::exit_code(signal)),
        done = execute(&client, command) => done,
    };
    close(&client).await;
    outcome
}

async fn execute(client: &redisson_lock::Client, command: LatchCommand) -> Result<u8, Failure> {
    match command {
        LatchCommand::Create { name, count } => {
            if !client.count_down_latch(&name).try_set_count(count).await? {
                return Err(Failure::Busy(format!("the latch `{name}` exists: it is unchanged")));
            }
        }
        LatchCommand::CountDown { name } => client.count_down_latch(&name).count_down().await?,
        LatchCommand::Count { name } => println!("{}", client.count_down_latch(&name).count().await?),
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
