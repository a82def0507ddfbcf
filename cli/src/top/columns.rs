//! The columns of the table: their cells, their order, and their widths.

use crate::list::holder_name;
use crate::table::{number, shown, width};
use crate::top::history::{Entry, brief};
use ratatui::style::Style;
use ratatui::text::Span;
use std::cmp::{Ordering, Reverse};
use std::time::{Duration, Instant};

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Name,
    Kind,
    Holders,
    Owner,
    Waiters,
    Waited,
    Held,
    Lease,
}

/// The columns from left to right.
pub const COLUMNS: [Column; 8] = [
    Column::Name,
    Column::Kind,
    Column::Holders,
    Column::Owner,
    Column::Waiters,
    Column::Waited,
    Column::Held,
    Column::Lease,
];

/// The columns to sort by, in the order of the key `s`.
const SORTS: [Column; 6] =
    [Column::Waiters, Column::Waited, Column::Held, Column::Lease, Column::Holders, Column::Name];

/// The columns that a narrow terminal does without, the least important first.
const DROPPED: [Column; 7] = [
    Column::Holders,
    Column::Kind,
    Column::Waited,
    Column::Lease,
    Column::Held,
    Column::Waiters,
    Column::Owner,
];

impl Column {
    /// The title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Name => "NAME",
            Self::Kind => "KIND",
            Self::Holders => "HOLDERS",
            Self::Owner => "OWNER",
            Self::Waiters => "WAITERS",
            Self::Waited => "WAITED",
            Self::Held => "HELD",
            Self::Lease => "LEASE",
        }
    }

    /// Whether the cells are aligned to the right.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Name | Self::Kind | Self::Owner)
    }

    /// The column to sort by after this one.
    pub fn next_sort(self) -> Self {
        let at = SORTS.iter().position(|column| *column == self).unwrap_or_default();
        SORTS[(at + 1) % SORTS.len()]
    }

    /// Which of two locks comes first. Long waits and holds come first, and short leases.
    pub fn order(self, one: &Entry, other: &Entry, now: Instant) -> Ordering {
        let key = |entry: &Entry| match self {
            Self::Waiters => Reverse(u128::from(entry.lock.waiters.unwrap_or_default())),
            Self::Waited => Reverse(entry.waiting().map_or(0, |since| 1 + since.age(now).as_nanos())),
            Self::Held => Reverse(entry.held().map_or(0, |since| 1 + since.age(now).as_nanos())),
            Self::Lease => {
                Reverse(u128::MAX - entry.lock.remaining_lease.map_or(u128::MAX, |left| left.as_nanos()))
            }
            Self::Holders => Reverse(holders(entry).map_or(0, u128::from)),
            Self::Name | Self::Kind | Self::Owner => Reverse(0),
        };
        key(one).cmp(&key(other)).then_with(|| one.lock.name.cmp(&other.lock.name))
    }

    /// The text of a cell.
    pub fn cell(self, entry: &Entry, now: Instant) -> String {
        let lock = &entry.lock;
        let none = || "-".to_owned();
        match self {
            Self::Name => shown(&lock.name),
            Self::Kind => lock.kind.to_string(),
            Self::Holders => number(holders(entry)),
            Self::Owner => match (lock.holders.first(), lock.count, lock.taken) {
                (Some(first), ..) => holder_name(first),
                (None, Some(free), Some(_)) => format!("{free} free"),
                (None, Some(count), None) => format!("count {count}"),
                (None, None, _) => none(),
            },
            Self::Waiters => number(lock.waiters),
            Self::Waited => entry.waiting().map_or_else(none, |since| since.text(now)),
            Self::Held => entry.held().map_or_else(none, |since| since.text(now)),
            Self::Lease => lease(lock.remaining_lease),
        }
    }

    /// The width below which the column is of no use.
    fn least(self, wanted: usize) -> usize {
        match self {
            Self::Name => wanted.min(12),
            Self::Kind => wanted.min(8),
            Self::Owner => wanted.min(10),
            _ => wanted,
        }
    }
}

/// The number of holders, or of taken permits.
fn holders(entry: &Entry) -> Option<u64> {
    let lock = &entry.lock;
    if lock.count.is_some() { lock.taken } else { u64::try_from(lock.holders.len()).ok() }
}

/// The rest of a lease.
pub fn lease(left: Option<Duration>) -> String {
    match left {
        None => "-".to_owned(),
        Some(Duration::MAX) => "no end".to_owned(),
        Some(left) => brief(left),
    }
}

/// The columns that fit, with their widths, and the space between them.
///
/// `wanted` has the widths of the longest cells. Names, owners and kinds are cut to a width that is still of use, before a column is
/// dropped.
pub fn fit(wanted: [usize; 8], available: usize) -> (Vec<(Column, usize)>, usize) {
    let all: Vec<_> = COLUMNS.into_iter().zip(wanted).collect();
    let total = |columns: &[(Column, usize)], gap: usize| {
        columns.iter().map(|(_, width)| width + gap).sum::<usize>().saturating_sub(gap)
    };
    if total(&all, 2) <= available {
        return (all, 2);
    }
    for dropped in 0..=DROPPED.len() {
        let kept: Vec<_> =
            all.iter().copied().filter(|(column, _)| !DROPPED[..dropped].contains(column)).collect();
        let mut columns: Vec<_> =
            kept.iter().map(|&(column, wanted)| (column, column.least(wanted))).collect();
        if dropped == DROPPED.len() {
            // Only names are left.
            columns[0].1 = columns[0].1.min(available);
        }
        let mut spare = available.saturating_sub(total(&columns, 1));
        if total(&columns, 1) > available {
            continue;
        }
        // In turn, so that a long name leaves something to the owner.
        while spare > 0 && columns.iter().zip(&kept).any(|(now, wanted)| now.1 < wanted.1) {
            for (now, wanted) in columns.iter_mut().zip(&kept) {
                if now.1 < wanted.1 && spare > 0 {
                    now.1 += 1;
                    spare -= 1;
                }
            }
        }
        return (columns, 1);
    }
    (Vec::new(), 1)
}

/// Cuts a text to a width. An ellipsis is in place of the rest.
pub fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for part in Span::raw(text).styled_graphemes(Style::new()) {
        used += width(part.symbol);
        if used > most {
            break;
        }
        kept.push_str(part.symbol);
    }
    if most > 0 {
        kept.push('…');
    }
    kept
}

/// Cuts an owner id. Its end tells apart the owners of one client, so the id of the client is cut first.
pub fn cut_owner(owner: &str, most: usize) -> String {
    /// The start of a client's id that still tells most clients apart, with the ellipsis and the colon.
    const CLIENT: usize = 6;
    match owner.split_once(':') {
        Some((client, rest)) if width(owner) > most && most >= 2 * CLIENT => {
            let rest = cut(rest, most - CLIENT);
            let client = cut(client, most - width(&rest) - 1);
            format!("{client}:{rest}")
        }
        _ => cut(owner, most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_shrink_before_the_least_important_ones_go() {
        let wanted = [40, 19, 7, 39, 7, 6, 6, 6];
        let widths = |available| {
            let (columns, gap) = fit(wanted, available);
            let used = columns.iter().map(|(_, width)| width + gap).sum::<usize>() - gap;
            assert!(used <= available, "{available}: {columns:?}");
            columns
        };
        assert_eq!(widths(160), COLUMNS.into_iter().zip(wanted).collect::<Vec<_>>());
        let narrow = widths(80);
        assert_eq!(narrow.len(), 8);
        assert_eq!(narrow[0], (Column::Name, 16));
        assert_eq!(narrow[3], (Column::Owner, 13));
        let names = |available| widths(available).into_iter().map(|(column, _)| column).collect::<Vec<_>>();
        assert_eq!(names(50), [Column::Name, Column::Owner, Column::Waiters, Column::Held, Column::Lease]);
        assert_eq!(names(12), [Column::Name]);
        assert_eq!(widths(3), [(Column::Name, 3)]);
        assert_eq!(widths(0), [(Column::Name, 0)]);
    }

    #[test]
    fn texts_are_cut_by_their_width() {
        for (text, most, expected) in [
            ("orders", 6, "orders"),
            ("orders", 5, "orde…"),
            ("注文注文", 8, "注文注文"),
            ("注文注文", 7, "注文注…"),
            ("注文注文", 6, "注文…"),
            ("e\u{301}e\u{301}e\u{301}", 2, "e\u{301}…"),
            ("orders", 1, "…"),
            ("orders", 0, ""),
        ] {
            assert_eq!(cut(text, most), expected, "{text} {most}");
        }
        let owner = "7c9e6679-7425-40de-944b-e07fc1f90ae7:85";
        assert_eq!(cut_owner(owner, 39), owner);
        assert_eq!(cut_owner(owner, 12), "7c9e6679…:85");
        assert_eq!(cut_owner("7c9e6679-7425-40de-944b-e07fc1f90ae7:nightly-report", 14), "7c9e…:nightly…");
        assert_eq!(cut_owner(owner, 7), "7c9e66…");
    }
}
