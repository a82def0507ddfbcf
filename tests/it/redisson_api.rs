//! The table of Redisson's methods, compared with the methods that a real Redisson has.

use std::collections::BTreeSet;

use crate::support::{Java, since, versions};

#[path = "../../xtask/src/redisson_api/table.rs"]
mod table;

use table::{Here, SECTIONS};

const INTERFACES: [&str; 6] =
    ["RLock", "RFencedLock", "RReadWriteLock", "RSemaphore", "RPermitExpirableSemaphore", "RCountDownLatch"];

/// Each method is mapped to one of this library, or left out with a reason.
#[tokio::test]
async fn the_table_has_exactly_redissons_methods() {
    // The table describes the newest version.
    let Some(newest) = versions().into_iter().find(|version| since(version, 4, 7)) else { return };
    let java = Java::get(&newest);
    let mut methods = BTreeSet::new();
    for interface in INTERFACES {
        methods.extend(java.methods(interface).await);
    }
    assert!(methods.len() > 200, "{methods:?}");
    let mut unknown = methods.clone();
    for section in SECTIONS {
        for row in section.rows {
            let (Here::Mapped(text) | Here::LeftOut(text)) = row.here;
            assert!(!text.is_empty(), "{:?}", row.java);
            for java in row.java {
                // Each method is declared by one of the interfaces of its section, or by several.
                let forms = section.interfaces.iter().map(|of| format!("{of}.{}", without_names(java)));
                let declared = forms.filter(|form| methods.contains(form)).inspect(|form| {
                    unknown.remove(form);
                });
                assert!(declared.count() > 0, "{newest} has no {java} in {:?}", section.interfaces);
            }
        }
    }
    let known = &methods - &unknown;
    unknown.retain(|method| !is_async_form(method, &known));
    assert!(unknown.is_empty(), "neither mapped nor left out with a reason: {unknown:#?}");
}

/// A method as reflection shows it: `lock(long,TimeUnit)`.
fn without_names(java: &str) -> String {
    let (name, parameters) = java.trim_end_matches(')').split_once('(').unwrap();
    let types = parameters.split(", ").map(|parameter| parameter.split([' ', '<']).next().unwrap());
    format!("{name}({})", types.collect::<Vec<_>>().join(","))
}

/// Whether the method is `RLockAsync.lockAsync(..)` and has the parameters of a known `lock(..)`, perhaps with a thread id.
fn is_async_form(method: &str, known: &BTreeSet<String>) -> bool {
    let Some((interface, method)) = method.split_once("Async.") else { return false };
    let plain = method.replacen("Async(", "(", 1);
    let without_thread = plain.strip_suffix("long)").map(|rest| format!("{})", rest.trim_end_matches(',')));
    // `Lock` declares some of the methods whose async forms `RLockAsync` declares.
    let interfaces = [interface, interface.trim_start_matches('R')];
    [Some(&plain), without_thread.as_ref()]
        .into_iter()
        .flatten()
        .any(|form| interfaces.iter().any(|interface| known.contains(&format!("{interface}.{form}"))))
}
