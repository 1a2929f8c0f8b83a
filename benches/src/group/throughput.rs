//! Puts per second by 1, 16 and 64 callers, at both levels, both groups in turn.

use std::net::SocketAddr;

use crate::Settings;
use crate::child::Child;
use crate::error::BenchError;
use crate::group::{Answer, Group, Request, Wanted, clients};
use crate::measure::{Report, Series, Target};

const CALLERS: [usize; 3] = [1, 16, 64];

/// How the groups are driven.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driving {
    /// By threads of the primary's process.
    Inside,
    /// Over connections.
    Connections,
}

pub(crate) fn run(settings: &Settings) -> Result<Report, BenchError> {
    let folder = settings.folder()?;
    let quorum = Group::quorum(settings, folder.path())?;
    let ours = Group::windlass(settings, folder.path())?;
    let mut groups = [quorum, ours];
    for group in &mut groups {
        group.warm_up()?;
    }
    let mut clients = Child::start(clients::ROLE, &())?;
    let mut report = Report::default();
    for wanted in [Wanted::Replicated, Wanted::Durable] {
        let mut addresses = Vec::new();
        for group in &mut groups {
            let Answer::Address(address) = group.ask(&Request::Serve { wanted })? else {
                panic!("another answer than asked for");
            };
            addresses.push(address);
        }
        for driving in [Driving::Connections, Driving::Inside] {
            for callers in CALLERS.into_iter().filter(|callers| settings.has_callers(*callers)) {
                let how = match driving {
                    Driving::Inside => "callers in the primary's process",
                    Driving::Connections => "connections",
                };
                let name = |who: &str| format!("{who}, {callers} {how}");
                let names = [name("raw quorum log"), name("windlass")];
                let mut rates = names.clone().map(Series::new);
                let mut p50s = names.clone().map(Series::new);
                let mut works = names.map(Series::new);
                for _ in 0..settings.rounds() {
                    for at in 0..groups.len() {
                        let before_us = groups[at].work_us()?;
                        let how_ms = u64::try_from(settings.slice().as_millis()).expect("short");
                        let answer = match driving {
                            Driving::Inside => groups[at].ask(&Request::Drive { callers, how_ms, wanted })?,
                            Driving::Connections => by_clients(&mut clients, addresses[at], callers, how_ms)?,
                        };
                        let Answer::Driven { rate, p50_us } = answer else {
                            panic!("another answer than asked for");
                        };
                        rates[at].push(rate);
                        p50s[at].push(p50_us);
                        let puts = rate * settings.slice().as_secs_f64();
                        works[at].push((groups[at].work_us()? - before_us) / puts);
                        groups[at].ask(&Request::Trim)?;
                    }
                }
                report.compare(format!("{wanted:?}"), "puts/s", &rates);
                report.compare(format!("{wanted:?}, p50"), "µs", &p50s);
                report.compare(format!("{wanted:?}, processor time of the group"), "µs per put", &works);
                if callers == 64 {
                    let target = match wanted {
                        Wanted::Replicated => Target::AtLeast(2.0),
                        Wanted::Durable => Target::AtLeast(1.5),
                    };
                    let figure = format!("{wanted:?} puts per s, 64 {how} ÷ raw quorum log");
                    report.judge(figure, target, rates[1].over(&rates[0]));
                }
            }
        }
    }
    Ok(report)
}

fn by_clients(
    clients: &mut Child,
    address: SocketAddr,
    callers: usize,
    how_ms: u64,
) -> Result<Answer, BenchError> {
    clients.ask(&clients::Drive { address, callers, how_ms })
}
