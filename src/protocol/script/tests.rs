use super::*;
use crate::protocol::keys::{AnyKeys, CounterKeys, FairLockKeys, GroupKeys, LockKeys, ReadWriteKeys};
use std::collections::BTreeSet;

/// The indexes n of `what[n]` in `text`.
fn indexes(text: &str, what: &str) -> BTreeSet<String> {
    text.match_indices(&format!("{what}["))
        .map(|(at, found)| text[at + found.len()..].split(']').next().unwrap().to_owned())
        .collect()
}

#[test]
fn each_header_names_the_keys_and_arguments_that_are_used() {
    for script in ALL {
        let (header, code): (Vec<_>, Vec<_>) = script.source.lines().partition(|l| l.starts_with("--"));
        let (header, code) = (header.join("\n"), code.join("\n"));
        assert!(header.contains("Reply"), "the head of {} has no reply", script.name);
        // A batch walks KEYS instead of indexing it.
        if !script.name.ends_with("_renew") {
            assert_eq!(indexes(&header, "KEYS"), indexes(&code, "KEYS"), "{}", script.name);
            assert_eq!(indexes(&header, "ARGV").len(), indexes(&code, "ARGV").len(), "{}", script.name);
        }
        assert_eq!(script.uses_channel, header.contains("'spublish'"), "{}", script.name);
        assert_eq!(script.sha().len(), 40);
    }
    let on_disk = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).unwrap().count();
    assert_eq!(on_disk, ALL.len(), "a script under lua/ is missing in the table");
}

#[test]
fn each_request_has_as_many_arguments_as_its_script_uses() {
    let (k, o): (Arc<str>, Arc<str>) = ("k".into(), "o".into());
    let queue = FairLockKeys::new(LockKeys::new("k".into()).unwrap());
    let group = GroupKeys::new(LockKeys::new("k".into()).unwrap(), String::new(), uuid::Uuid::nil());
    let permits = CounterKeys::semaphore(LockKeys::new("k".into()).unwrap(), uuid::Uuid::nil());
    let rw = ReadWriteKeys::new(LockKeys::new("k".into()).unwrap());
    for request in [
        acquire(&k, &o, 1),
        acquire_fenced(&k, &k, &o, 1, 1),
        acquire_fair(&queue, &o, [1, 1, 1]),
        recount(&k, &o, 1, 2, 1),
        release(&k, &o, &k),
        release_silently(&k, &o, &k),
        release_fair(&queue, &o),
        hand_off(&k, &o, &o, Arg::Number(1), &k),
        hand_off_fenced([&k, &k], &o, &o, [Arg::Number(1), Arg::Number(1)], &k),
        hand_off_fair(&queue, &o, &o, [Arg::Number(1), Arg::Number(1)]),
        hand_off_value(&k, &o, &o, Arg::Number(1), &k),
        leave_fair(&queue, &o, 1),
        refresh_fair(&queue, &[o.clone(), o.clone()], 1),
        force_unlock(&k, &k),
        force_unlock_fair(&queue),
        acquire_write(&rw, &o, 1, &o, true),
        release_write(&rw, &o),
        acquire_read(&rw, &o, 1, &o),
        extend_read(&rw, &o, 1),
        release_read(&rw, &o, Some(&[])),
        force_unlock_read_write(&rw, Side::Read),
        take_permits(&permits, &o, 1),
        give_permits(&permits, 1, &o, Some(&o)),
        set_permits(&permits, 1, 0),
        add_permits(&permits, 1, true),
        drain_permits(&permits),
        take_ids(&permits, &o, 1),
        give_ids(&permits, &o),
        undo_ids(&permits, &o),
        give_id(&permits, [0; 16]),
        give_permits_if_exists(&permits, 1),
        permit_counts(&permits),
        permit_lease(&permits, [0; 16]),
        set_permit_lease(&permits, [0; 16], 1),
        set_all_permits(&permits, 1),
        look(&permits),
        count_down(&permits),
        set_count(&permits, 1),
        delete_latch(&permits),
        take_values(&group, 1, &o, 1),
        release_values(&group, 1, &o, &[1]),
        values_holder(&group, None),
        inspect(&k, &k, FEW),
        inspect_shares(&rw),
        inspect_fair(&queue),
        inspect_value(&k, &k),
        force_unlock_values(&group),
        acquire_value(&k, &o, 1),
        release_value(&k, &o, &k),
        force_unlock_value(&k, &k),
        count_subscriptions(&k),
        describe(&AnyKeys::new(LockKeys::new("k".into()).unwrap())),
    ] {
        let Verb::Script(script) = request.verb() else { unreachable!() };
        let used = ["KEYS", "ARGV"].map(|what| indexes(script.source, what).len());
        let given = request.args().count() + usize::from(script.sharded().is_some());
        assert_eq!([request.keys().len(), given], used, "{}", script.name);
    }
}

/// The server keeps the mark of such a request for an hour.
#[test]
fn a_request_that_depends_on_its_mark_is_not_repeated_late() {
    let number: Arc<str> = "1".into();
    let permits = CounterKeys::semaphore(LockKeys::new("k".into()).unwrap(), uuid::Uuid::nil());
    let sent = Moment::now();
    let later = |minutes: u64| sent + Duration::from_secs(minutes * 60);
    for mut request in [
        take_permits(&permits, &number, 1),
        give_permits(&permits, 1, &number, None),
        take_ids(&permits, &number, 1),
        count_down(&permits),
    ] {
        assert!(!request.is_stale(later(600)), "{request:?} was not sent yet");
        request.repeat(sent);
        request.repeat(later(20));
        assert!(!request.is_stale(later(29)) && request.is_stale(later(31)), "{request:?}");
    }
    for mut request in [
        give_permits(&permits, 1, &number, Some(&number)),
        give_ids(&permits, &number),
        undo_ids(&permits, &number),
    ] {
        request.repeat(sent);
        assert!(!request.is_stale(later(600)), "{request:?} may be repeated at any time");
    }
}

/// Each refusal is decoded in at least one of the forms that scripts reply.
#[test]
fn each_refusal_of_a_script_is_decoded() {
    assert_eq!(
        words(),
        BTreeSet::from(["BUSY", "FREED", "GONE", "KEYS", "MISMATCH", "OTHER", "OWN", "STALE"])
    );
    for word in words() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        let forms = [
            vec![text(word)],
            vec![text(word), Reply::Int(1)],
            vec![text(word), Reply::Int(1), text("holder")],
        ];
        let decoded = forms.map(Reply::List).iter().any(|reply| {
            acquired(reply).is_ok()
                || recounted(reply).is_ok()
                || released(reply).is_ok()
                || handed_off(reply).is_ok()
        });
        assert!(decoded, "{word}");
    }
}

#[test]
fn replies_that_do_not_fit_are_errors() {
    let strange = [
        Reply::Nil,
        Reply::Int(-7),
        Reply::Text(b"TAKEN".to_vec()),
        Reply::List(vec![]),
        Reply::List(vec![Reply::Text(b"BUSY".to_vec())]),
        Reply::List(vec![Reply::Text(b"".to_vec()), Reply::Int(1)]),
        Reply::List(vec![Reply::Text(b"FREED".to_vec()), Reply::Int(1)]),
        Reply::List(vec![Reply::Nil, Reply::Unsupported]),
        Reply::Unsupported,
    ];
    for reply in &strange {
        assert_eq!(acquired(reply), Err(Undecodable));
        assert_eq!(recounted(reply), Err(Undecodable));
        assert_eq!(released(reply), Err(Undecodable));
        assert_eq!(handed_off(reply), Err(Undecodable));
        assert_eq!(renewed(Renewal::Lock, reply, 1), Err(Undecodable));
        assert_eq!(ids_passed(reply, 1), Err(Undecodable));
    }
}
