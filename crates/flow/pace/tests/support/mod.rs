//! A fluid model of a bottleneck: flows, a queue that overflows, round trips and disturbances. One
//! step is a millisecond of simulated time.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a model of flows counts in fractions"
)]

use sprat_pace::weir::{Mode, Sample, TICKS_PER_RTT, Weir};
use std::collections::VecDeque;
use std::time::Duration;

/// Length of a step, in seconds.
pub(crate) const STEP: f64 = 0.001;

pub(crate) const MSS: f64 = 1448.0;

/// What determines the rate of a flow.
pub(crate) enum Control {
    Weir(Box<Weir>),
    /// CUBIC as in RFC 9438, without its Reno-friendly region.
    Cubic {
        window: f64,
        max: f64,
        epoch: f64,
        starting: bool,
        held_until: f64,
    },
    /// The flow sends nothing.
    Gone,
}

impl Control {
    pub(crate) fn weir() -> Self {
        Self::Weir(Box::default())
    }

    pub(crate) fn cubic() -> Self {
        Self::Cubic { window: 10.0, max: 0.0, epoch: 0.0, starting: true, held_until: 0.0 }
    }
}

/// A report that reaches the sender at the time `at`.
struct News {
    at: f64,
    delivered: f64,
    lost: f64,
    rtt: f64,
}

pub(crate) struct Flow {
    pub(crate) control: Control,
    /// The current rate, in bytes a second.
    pub(crate) rate: f64,
    queued: f64,
    /// Reports of what arrived, and reports of what was lost, each in order of time.
    news: [VecDeque<News>; 2],
    to_resend: f64,
    losing: f64,
    pub(crate) sent: f64,
    pub(crate) resent: f64,
    pub(crate) delivered: f64,
    srtt: f64,
    least: f64,
    next_tick: f64,
}

impl Flow {
    pub(crate) fn new(control: Control) -> Self {
        Self {
            control,
            rate: 0.0,
            queued: 0.0,
            news: [VecDeque::new(), VecDeque::new()],
            to_resend: 0.0,
            losing: 0.0,
            sent: 0.0,
            resent: 0.0,
            delivered: 0.0,
            srtt: 0.0,
            least: f64::MAX,
            next_tick: 0.0,
        }
    }

    pub(crate) fn mode(&self) -> Option<Mode> {
        if let Control::Weir(weir) = &self.control { Some(weir.mode()) } else { None }
    }
}

pub(crate) struct World {
    pub(crate) now: f64,
    /// The bottleneck's rate in bytes a second, its buffer in bytes, and the round-trip time
    /// without a queue in seconds.
    pub(crate) capacity: f64,
    pub(crate) buffer: f64,
    pub(crate) rtt: f64,
    /// Share of the sent bytes that is lost at random.
    pub(crate) accident: f64,
    /// The interval between two stalls of the sender's machine and the length of a stall, both in
    /// seconds. Reports wait during a stall.
    pub(crate) hiccup: Option<(f64, f64)>,
    /// The time until which nothing leaves the bottleneck.
    pub(crate) stands_until: f64,
    pub(crate) flows: Vec<Flow>,
}

impl World {
    pub(crate) fn new(capacity: f64, buffer: f64, rtt: f64, flows: Vec<Control>) -> Self {
        let flows = flows.into_iter().map(Flow::new).collect();
        Self {
            now: 0.0,
            capacity,
            buffer,
            rtt,
            accident: 0.0,
            hiccup: None,
            stands_until: 0.0,
            flows,
        }
    }

    /// Simulates `seconds`. Returns the number of bytes delivered of each flow.
    pub(crate) fn run(&mut self, seconds: f64) -> Vec<f64> {
        let before: Vec<_> = self.flows.iter().map(|flow| flow.delivered).collect();
        let end = self.now + seconds;
        while self.now < end {
            self.step();
        }
        self.flows.iter().zip(before).map(|(flow, before)| flow.delivered - before).collect()
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        let held = self.hiccup.is_some_and(|(every, length)| now % every < length);
        for flow in &mut self.flows {
            hear(flow, now, held, self.rtt);
        }
        // Bytes enter the queue, as far as there is room.
        let arriving: Vec<_> = self.flows.iter().map(|flow| flow.rate * STEP).collect();
        let queued: f64 = self.flows.iter().map(|flow| flow.queued).sum();
        let coming: f64 = arriving.iter().sum::<f64>() * (1.0 - self.accident);
        let room = self.buffer + self.capacity * STEP - queued;
        let fits =
            if coming > room { (room / coming).max(0.0) } else { 1.0 } * (1.0 - self.accident);
        let delay = queued / self.capacity;
        for (flow, sent) in self.flows.iter_mut().zip(&arriving) {
            let resent = sent.min(flow.to_resend);
            flow.to_resend -= resent;
            flow.resent += resent;
            flow.sent += sent;
            flow.queued += sent * fits;
            let lost = sent * (1.0 - fits);
            if lost > 0.0 {
                // The sender detects a loss when bytes that were sent later have arrived.
                let at = now + self.rtt + delay + 0.002;
                flow.news[1].push_back(News { at, delivered: 0.0, lost, rtt: 0.0 });
            }
        }
        // Bytes leave the queue, in proportion to what each flow has in it.
        let queued: f64 = self.flows.iter().map(|flow| flow.queued).sum();
        let out = if now < self.stands_until { 0.0 } else { queued.min(self.capacity * STEP) };
        for flow in &mut self.flows {
            let bytes = if queued > 0.0 { out * flow.queued / queued } else { 0.0 };
            flow.queued -= bytes;
            let rtt = self.rtt + delay;
            flow.news[0].push_back(News { at: now + self.rtt, delivered: bytes, lost: 0.0, rtt });
        }
    }
}

fn due(news: &mut [VecDeque<News>; 2], now: f64) -> Option<News> {
    news.iter_mut().find_map(|news| if news.front()?.at <= now { news.pop_front() } else { None })
}

fn hear(flow: &mut Flow, now: f64, held: bool, rtt: f64) {
    while !held && let Some(news) = due(&mut flow.news, now) {
        flow.delivered += news.delivered;
        flow.to_resend += news.lost;
        if news.delivered > 0.0 {
            let took = news.rtt + (now - news.at);
            flow.srtt = if flow.srtt == 0.0 { took } else { flow.srtt * 0.7 + took * 0.3 };
            flow.least = flow.least.min(took);
        }
        // A slow flow loses a whole segment now and then, not a part of each segment.
        flow.losing += news.lost;
        let loses = flow.losing >= MSS;
        flow.losing %= MSS;
        if loses
            && let Control::Cubic { window, max, epoch, starting, held_until } = &mut flow.control
            && now >= *held_until
        {
            (*max, *window, *epoch, *starting, *held_until) =
                (*window, *window * 0.7, now, false, now + flow.srtt);
        }
    }
    let srtt = if flow.srtt == 0.0 { rtt } else { flow.srtt };
    match &mut flow.control {
        Control::Gone => flow.rate = 0.0,
        Control::Cubic { window, max, epoch, starting, .. } => {
            if *starting {
                *window *= 2.0_f64.powf(STEP / srtt);
            } else {
                let k = (*max * 0.3 / 0.4).cbrt();
                *window = (0.4 * (now - *epoch - k).powi(3) + *max).max(2.0);
            }
            flow.rate = *window * MSS / srtt;
        }
        Control::Weir(weir) => {
            if now < flow.next_tick || held {
                return;
            }
            flow.next_tick = now + (rtt / f64::from(TICKS_PER_RTT)).clamp(0.002, 0.025);
            let least = if flow.least == f64::MAX { rtt } else { flow.least };
            let time = Duration::from_secs_f64;
            let rate = weir.update(Sample {
                now: time(now),
                mss: MSS as u32,
                sent: flow.sent as u64,
                retransmitted: flow.resent as u64,
                delivered: flow.delivered as u64,
                lost: flow.to_resend as u64,
                rtt: time(srtt),
                rtt_variation: Duration::ZERO,
                min_rtt: time(least),
                idle: false,
            });
            flow.rate = rate as f64;
        }
    }
}
