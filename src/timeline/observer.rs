//! A timeline as the observer of a client.

use crate::error::LossReason;
use crate::observer::{Acquired, Ended, NotAcquired, Observer, Waiting, Way};
use crate::timeline::Timeline;
use crate::timeline::event::{TimelineChange, TimelineEvent};
use std::time::Duration;

impl Observer for Timeline {
    fn on_waiting(&self, call: &Waiting<'_>) {
        self.note(call.name, call.kind, call.owner, TimelineChange::Waiting { call: call.call });
    }

    fn on_acquired(&self, acquired: &Acquired<'_>) {
        let &Acquired { call, name, kind, owner, .. } = acquired;
        let waited = if acquired.waited { acquired.took } else { Duration::ZERO };
        let change = match acquired.hold {
            Some(hold) if acquired.way == Way::ReEntered => TimelineChange::ReEntered { call, hold, waited },
            Some(hold) => TimelineChange::Acquired { call, hold, waited },
            None => TimelineChange::Passed { call, waited },
        };
        self.note(name, kind, owner, change);
    }

    fn on_not_acquired(&self, call: &NotAcquired<'_>) {
        let &NotAcquired { call, name, kind, owner, end, waited, took, .. } = call;
        let outcome = end.to_string().into();
        let waited = if waited { took } else { Duration::ZERO };
        self.note(name, kind, owner, TimelineChange::Refused { call, waited, outcome });
    }

    fn on_released(&self, hold: &Ended<'_>) {
        let &Ended { hold, name, kind, owner, held } = hold;
        self.note(name, kind, owner, TimelineChange::Released { hold, held });
    }

    fn on_lost(&self, hold: &Ended<'_>, reason: LossReason) {
        let &Ended { hold, name, kind, owner, held } = hold;
        self.note(name, kind, owner, TimelineChange::Lost { hold, held, reason: reason.to_string().into() });
    }

    fn on_unended(&self, hold: &Ended<'_>) {
        let &Ended { hold, name, kind, owner, held } = hold;
        self.note(name, kind, owner, TimelineChange::Abandoned { hold, held });
    }
}

impl Timeline {
    fn note(&self, name: &str, kind: &'static str, owner: &str, change: TimelineChange) {
        self.record(TimelineEvent::new(Self::now(), name, owner, change).with_kind(kind));
    }
}
