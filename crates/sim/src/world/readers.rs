//! Who reads: each member's application, which reads on in whatever role; and on a primary two subscriptions, one made anew where that application stands whenever
//! somebody reads, and one that is made when the tenure begins, waits, and goes on when it is woken, until the tenure ends. What they are shown the oracle judges
//! ([`crate::oracle::shown`]).

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use windlass::{Level, Lsn, NodeReader, ReadError, Subscription};

use super::member::SimDriver;
use super::{What, World};
use crate::coverage::Mark;
use crate::fabric::MS;
use crate::oracle::shown::{Reading, Seen, Shown, Standing};
use crate::oracle::{Checked, read_errors};

/// A member's application reads on here.
pub(super) struct Application {
    reader: NodeReader,
    shown: Shown,
}

impl Application {
    pub(super) fn at(driver: &SimDriver, from: Lsn) -> Option<Application> {
        Some(Application { reader: driver.read_from(from).ok()?, shown: Shown::from(from) })
    }
}

/// A client that has subscribed when a tenure began, and waits for more until that has ended.
pub(super) struct Subscriber {
    level: Level,
    shown: Shown,
    /// What it was shown and nobody has judged yet.
    seen: Rc<RefCell<Vec<Seen>>>,
    task: Pin<Box<dyn Future<Output = (ReadError, Lsn)>>>,
    bell: Arc<Bell>,
    has_waited: bool,
}

/// Says that a subscriber may go on.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes all that it is shown, and waits for more. Why there is no more, and where it stands.
async fn follow(mut subscription: Subscription, seen: Rc<RefCell<Vec<Seen>>>) -> (ReadError, Lsn) {
    loop {
        match subscription.next().await {
            Ok(record) => seen.borrow_mut().push(Seen::from(&record)),
            Err(error) => return (error, subscription.position()),
        }
    }
}

impl Subscriber {
    fn new(subscription: Subscription, level: Level) -> Subscriber {
        let shown = Shown::from(subscription.position());
        let seen = Rc::default();
        // It looks at once.
        let bell = Arc::new(Bell(AtomicBool::new(true)));
        let task = Box::pin(follow(subscription, Rc::clone(&seen)));
        Subscriber { level, shown, seen, task, bell, has_waited: false }
    }
}

impl World {
    /// Every member's application reads on, in whatever role; on a primary also the subscriptions.
    pub(super) fn read_some(&mut self) {
        self.plan(3 * MS, What::Read);
        for at in 0..self.members.len() {
            self.publish(at);
            if self.members[at].paused_until <= self.now {
                self.read(at);
                self.subscribe(at);
            }
        }
    }

    fn read(&mut self, at: usize) {
        self.reads_may_fail(at);
        let (checked, ended) = self.read_on(at);
        let failed = self.reads_held(at, Mark::ReaderUnread);
        self.holds(at);
        self.check(checked.and(read_errors::reader(at, failed, ended.as_ref())));
    }

    /// A member's application reads on, up to 200 records. What did not hold, and why it reads no further.
    fn read_on(&mut self, at: usize) -> (Checked, Option<ReadError>) {
        let member = &mut self.members[at];
        let (Some(application), Some(driver)) = (&mut member.application, &member.driver) else {
            return (Ok(()), None);
        };
        let superblock = driver.store().superblock();
        let reading = Reading {
            member: member.id,
            who: "the application",
            level: Level::Durable,
            limit: driver.published(),
            history: &superblock.history,
            unread_from: if member.is_publish_due { member.published } else { Lsn(u64::MAX) },
        };
        let mut checked = Ok(());
        let mut ended = None;
        for _ in 0..200 {
            match application.reader.next() {
                Ok(record) => {
                    self.events += 1;
                    checked = self.oracle.shown(&reading, &mut application.shown, &Seen::from(&record));
                }
                Err(error) => ended = Some(error),
            }
            if checked.is_err() || ended.is_some() {
                break;
            }
        }
        let position = application.reader.position();
        if let Some(error) = &ended {
            let log = Standing {
                trimmed: driver.store().trimmed(),
                has_rot: member.rot.is_some(),
                owed_to: reading.limit,
            };
            let shown = &mut application.shown;
            checked = checked.and_then(|()| self.oracle.shown_end(&reading, shown, position, error, &log));
        }
        if let Some(ReadError::Purged { first, .. }) = &ended {
            // Where the log was trimmed, or began anew from a checkpoint.
            member.application = Application::at(driver, *first);
        }
        if let Some(application) = &member.application {
            member.read_to = member.read_to.max(application.reader.position());
        }
        (checked, ended)
    }

    fn subscribe(&mut self, at: usize) {
        if self.members[at].log.is_none() {
            return;
        }
        self.reads_may_fail(at);
        let (checked, ended) = self.subscribe_anew(at);
        let failed = self.reads_held(at, Mark::SubscriptionUnread);
        self.check(checked.and(read_errors::reader(at, failed, ended.as_ref())));
        self.subscriber_is_served(at);
    }

    /// A client of the primary subscribes where the application stands, for up to five records. What did not hold, and why it got no further.
    fn subscribe_anew(&mut self, at: usize) -> (Checked, Option<ReadError>) {
        let member = &self.members[at];
        let (Some(log), Some(driver)) = (&member.log, &member.driver) else { return (Ok(()), None) };
        let level = if self.setting.replicated_allowed { Level::Replicated } else { Level::Local };
        member.clock.set(member.local(self.now));
        let info = log.info();
        // From a record's start that is there: where its application stands.
        let from = member.read_to.max(info.trimmed);
        let mut subscription = match log.subscribe(from, level) {
            Ok(subscription) => subscription,
            Err(error) => return (Ok(()), Some(error)),
        };
        let (superblock, status) = (driver.store().superblock(), driver.status());
        let reading = Reading {
            member: member.id,
            who: "a new subscription",
            level,
            limit: if level == Level::Replicated { status.replicated } else { info.persisted },
            history: &superblock.history,
            unread_from: Lsn(0),
        };
        let mut shown = Shown::from(from);
        let mut checked = Ok(());
        let mut ended = None;
        for _ in 0..5 {
            let polled = pin!(subscription.next()).poll(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Ready(Ok(record)) => {
                    checked = self.oracle.shown(&reading, &mut shown, &Seen::from(&record));
                }
                Poll::Ready(Err(error)) => ended = Some(error),
                Poll::Pending => break,
            }
            if checked.is_err() || ended.is_some() {
                break;
            }
        }
        (checked, ended)
    }

    /// A tenure begins: a client subscribes where the application stands, at a level that goes by the tenures before.
    pub(super) fn subscriber_begins(&mut self, at: usize) {
        let level = match self.oracle.tenures() % 3 {
            0 => Level::Durable,
            1 if self.setting.replicated_allowed => Level::Replicated,
            _ => Level::Local,
        };
        let member = &self.members[at];
        if let Some(driver) = &member.driver {
            let from = member.read_to.max(driver.store().trimmed());
            self.subscriber_from(at, from, level);
        }
    }

    fn subscriber_from(&mut self, at: usize, from: Lsn, level: Level) {
        let member = &mut self.members[at];
        let Some(log) = &member.log else { return };
        match log.subscribe(from, level) {
            Ok(subscription) => {
                member.subscriber = Some(Subscriber::new(subscription, level));
                self.subscriber_goes_on(at);
            }
            Err(error) => {
                let checked = self.oracle.not_subscribed(member.id, from, &error);
                self.check(checked);
            }
        }
    }

    /// Subscribers that were woken go on.
    pub(super) fn settle_subscribers(&mut self) {
        for at in 0..self.members.len() {
            self.subscriber_goes_on(at);
        }
    }

    /// A subscriber that was woken goes on. Where something has rotted it waits until that is had again: its look would have the member find it.
    fn subscriber_goes_on(&mut self, at: usize) {
        let member = &mut self.members[at];
        let (Some(subscriber), Some(driver)) = (&mut member.subscriber, &member.driver) else { return };
        if member.rot.is_some() || !subscriber.bell.0.swap(false, Ordering::Relaxed) {
            return;
        }
        let waker = Waker::from(Arc::clone(&subscriber.bell));
        let polled = subscriber.task.as_mut().poll(&mut Context::from_waker(&waker));
        let (level, status, superblock) = (subscriber.level, driver.status(), driver.store().superblock());
        let published = driver.published();
        let reading = Reading {
            member: member.id,
            who: "a subscriber",
            level,
            limit: match level {
                Level::Durable => published,
                // A takeover takes back what its engine says, not what was told in the tenure.
                Level::Replicated if member.log.is_none() => Lsn(u64::MAX),
                Level::Replicated => status.replicated,
                Level::Local | Level::Buffered => status.persisted.0,
            },
            history: &superblock.history,
            unread_from: member.published,
        };
        let log = Standing {
            trimmed: superblock.trimmed,
            has_rot: false,
            // What is flushed here alone need not be told yet.
            owed_to: if level == Level::Local { Lsn(0) } else { published },
        };
        let seen = subscriber.seen.take();
        let (shown, has_waited) = (&mut subscriber.shown, subscriber.has_waited);
        let mut checked = seen.iter().try_for_each(|seen| self.oracle.shown(&reading, shown, seen));
        let mut again = None;
        match polled {
            Poll::Pending => {
                checked = checked.and_then(|()| {
                    self.oracle.shown_on(&reading, shown, has_waited && seen.is_empty(), &log)
                });
                subscriber.has_waited = true;
            }
            Poll::Ready((error, position)) => {
                checked =
                    checked.and_then(|()| self.oracle.shown_end(&reading, shown, position, &error, &log));
                member.subscriber = None;
                if let ReadError::Purged { first, .. } = error {
                    again = Some(first);
                }
            }
        }
        if has_waited && !seen.is_empty() {
            self.mark(Mark::SubscriberWoken);
        }
        self.check(checked);
        if let Some(first) = again {
            self.subscriber_from(at, first, level);
        }
    }

    /// A subscriber that waits was shown all that its level has come to.
    fn subscriber_is_served(&mut self, at: usize) {
        self.subscriber_goes_on(at);
        let member = &self.members[at];
        let (Some(subscriber), Some(driver)) = (&member.subscriber, &member.driver) else { return };
        let (Some(log), false) = (&member.log, member.rot.is_some()) else { return };
        let (info, superblock) = (log.info(), driver.store().superblock());
        let limit = if subscriber.level == Level::Local { info.persisted } else { info.durable };
        let reading = Reading {
            member: member.id,
            who: "a subscriber that waits",
            level: subscriber.level,
            limit,
            history: &superblock.history,
            unread_from: member.published,
        };
        let checked = self.oracle.shown_up_to(&reading, &subscriber.shown, limit);
        self.check(checked);
    }

    /// A tenure has ended: its subscriber is told so.
    pub(super) fn subscriber_ends(&mut self, at: usize) {
        self.subscriber_goes_on(at);
        let member = &mut self.members[at];
        if let (Some(subscriber), None) = (member.subscriber.take(), member.rot) {
            let checked = self.oracle.not_ended(member.id, &subscriber.shown);
            self.check(checked);
        }
    }
}
