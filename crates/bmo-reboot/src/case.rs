//! A host under consideration: what its record, its status and its node say together.

use std::time::Duration;

use api_types::metal3::Kept;
use api_types::time::{until, whole};
use controller_kit::engine::Next;
use ironic::Power;
use k8s_openapi::jiff::{Timestamp, ToSpan as _};

use crate::model::{Host, Node, NodeSeen, OFF_CONFIRM_DELAY, Observed, OffProof, Pause};
use crate::reason::Reason;
use crate::record::{Doubt, RebootProgress, Record, Soft};
use crate::requests::{NOTHING_ASKED, Requests};
use crate::settings::Policy;
use crate::text;

/// How long a power-on of which the answer was lost may still be on its way to Ironic.
const POWER_ON_LOST: Duration = Duration::from_secs(30);

/// A host under consideration.
pub(crate) struct Case<'a> {
    pub(crate) host: &'a Host,
    pub(crate) seen: &'a Observed,
    pub(crate) policy: &'a Policy,
    /// On an available host only `spec.online` counts, and only if that was asked for.
    pub(crate) online_only: bool,
    /// Those that count.
    pub(crate) requests: &'a Requests,
    /// Whole seconds, like everything that is stored.
    pub(crate) now: Timestamp,
    /// The same with its fraction.
    pub(crate) exact: Timestamp,
    /// What is kept of the host.
    pub(crate) record: Kept<Record>,
}

impl<'a> Case<'a> {
    /// Nothing, if there is no host.
    pub(crate) fn of(seen: &'a Observed, policy: &'a Policy, exact: Timestamp) -> Option<Self> {
        let host = seen.host.as_ref()?;
        let online_only = host.is_online_only(policy);
        Some(Self {
            host,
            seen,
            policy,
            online_only,
            requests: if online_only { &NOTHING_ASKED } else { &host.requests },
            now: whole(exact),
            exact,
            record: host.record(),
        })
    }

    pub(crate) fn node(&self) -> Option<&'a Node> {
        self.seen.node.node()
    }

    /// Whether Ironic shows the node so.
    pub(crate) fn shows(&self, is_so: impl FnOnce(&Node) -> bool) -> bool {
        self.node().is_some_and(is_so)
    }

    /// When to look again at a node whose next step is Ironic's.
    pub(crate) fn ironics_turn(&self) -> Next {
        self.seen.pace.map_or(Next::OnChange, Next::After)
    }

    /// How far a reboot has come.
    pub(crate) fn progress(&self) -> Option<&RebootProgress> {
        self.record.known()?.progress.as_ref()
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        self.progress().map(|progress| progress.reason)
    }

    /// Whether this is so in what the record says.
    pub(crate) fn recorded(&self, is_so: impl FnOnce(&RebootProgress) -> bool) -> bool {
        self.progress().is_some_and(is_so)
    }

    pub(crate) fn is(&self, reason: Reason) -> bool {
        self.reason() == Some(reason)
    }

    fn is_in_doubt(&self, doubt: Doubt) -> bool {
        self.recorded(|progress| progress.doubt == Some(doubt))
    }

    pub(crate) fn is_held(&self) -> bool {
        self.requests.holds().next().is_some()
    }

    pub(crate) fn in_cycle(&self) -> bool {
        self.host.in_cycle() && !self.online_only
    }

    /// Whether the machine must never be switched off.
    pub(crate) fn must_stay_on(&self) -> bool {
        self.host.disable_power_off || self.shows(|node| node.disable_power_off)
    }

    /// Whether it is that of the node alone. The host allows it, and nobody but the operator tells Ironic so.
    pub(crate) fn only_node_stays_on(&self) -> bool {
        !self.host.disable_power_off && self.must_stay_on()
    }

    /// In which provision state the node is while the operator registers it. One that was made, or is manageable, is being
    /// registered where the operator says so, or it was missing, or seen in the middle, before: elsewhere it may have been
    /// left so for good.
    pub(crate) fn being_registered(&self) -> Option<&'static str> {
        let known = self.host.managed().map(|managed| managed.reason);
        let awaited = [Reason::NodeNotFound, Reason::NodeRegistering].map(Some).contains(&known);
        let state = self.node()?.registration;
        state.filter(|_| awaited || self.registration_is_under_way())
    }

    /// Whether the operator is in the middle of registering the node, by the node or by its own record.
    fn registration_is_under_way(&self) -> bool {
        self.shows(|node| {
            let begun = self.host.registering && node.registration.is_some();
            begun || node.is_being_registered()
        })
    }

    /// Whether the power was cut in what is under way, or is to be.
    pub(crate) fn was_hard(&self) -> bool {
        let in_cycle = self.in_cycle();
        self.recorded(|it| it.hard && (in_cycle || it.reason.is_phase()))
    }

    /// Since when the host is held off, where that was seen and nothing was done since.
    pub(crate) fn held_since(&self) -> Option<Timestamp> {
        self.progress().and_then(RebootProgress::held_since)
    }

    /// Whether somebody holds a machine in maintenance that Ironic shows off, and Ironic was not asked for off in it for all who do.
    /// It shows what it knew before, and anybody may have started the machine by its button.
    pub(crate) fn is_out_of_sight(&self) -> bool {
        self.is_held_and_shown_off()
            && self.is_in_maintenance()
            && !self.is_told(RebootProgress::was_asked_for)
    }

    /// Whether the node is in maintenance.
    pub(crate) fn is_in_maintenance(&self) -> bool {
        self.shows(|node| node.maintenance)
    }

    /// Whether somebody holds a machine that Ironic shows off, and no off that it has taken proves that.
    fn is_held_and_shown_off(&self) -> bool {
        let shown_off = |node: &Node| node.shows_off() && node.off_proof != OffProof::Twice;
        self.is_held() && self.shows(shown_off)
    }

    /// Whether the machine was off for all who hold it when somebody last saw it.
    pub(crate) fn is_held_as_before(&self) -> bool {
        self.is_told(RebootProgress::was_held_for)
    }

    /// What the record tells of those who hold the host.
    fn is_told(&self, told: fn(&RebootProgress, &[&str]) -> bool) -> bool {
        let holds: Vec<&str> = self.requests.holds().collect();
        self.recorded(|progress| told(progress, &holds))
    }

    /// Whether somebody holds a machine that Ironic shows off, and that is all that shows it. One that must stay on cannot be asked.
    pub(crate) fn is_unproven(&self) -> bool {
        self.is_held_and_shown_off()
            && !self.must_stay_on()
            && !self.is_told(RebootProgress::is_held_for)
    }

    /// Who wants the machine off, for people.
    fn wanted_by(&self) -> String {
        if !self.requests.is_empty() {
            return text::named(self.requests.keys());
        }
        let by = if self.in_cycle() { text::BY_A_WITHDRAWN_REQUEST } else { text::BY_ONLINE };
        by.to_owned()
    }

    /// What becomes of a change of power, for people.
    pub(crate) fn change(&self, hard: bool, what: &str) -> String {
        text::change(hard, &self.wanted_by(), what)
    }

    /// The same of a soft attempt that began then.
    pub(crate) fn softly(&self, since: Timestamp) -> String {
        text::softly(since.checked_add(self.policy.soft_timeout).unwrap_or(since))
    }

    /// The soft attempt that is behind the host.
    pub(crate) fn soft(&self) -> Option<Soft> {
        self.progress().and_then(|progress| progress.soft)
    }

    /// The soft attempt that was written down ahead of its call. Whether Ironic took that, the record does not say.
    pub(crate) fn soft_ahead(&self) -> Option<Soft> {
        let ahead = self.progress().filter(|it| it.reason == Reason::SoftPowerOff)?;
        ahead.soft.is_none().then_some(Soft { since: ahead.since, last: ahead.since })
    }

    /// Whether a call of ours towards off may have failed since. What was waited for in between does not matter, and the failure of
    /// a power-on is one of these only for those who hold the machine. A machine that must stay on is not asked for off; in a
    /// cycle its reset ends the doubt, and without one nothing would.
    pub(crate) fn off_may_have_failed(&self, node: &Node) -> bool {
        let asked = self.reason().is_some_and(|reason| match reason {
            Reason::SoftPowerOff | Reason::HardPowerOff => true,
            Reason::PowerFailed => self.was_hard(),
            Reason::PoweringOn | Reason::Restarting => false,
            // Nobody of us knows what happened while a host was not looked after.
            waits => {
                let open = waits.is_phase() || waits.is_refusal();
                open && (self.was_hard() || self.host.powered_on)
            }
        });
        // What was held was seen off, so no call of ours is open.
        let asked = asked && self.held_since().is_none();
        let doubted = !self.must_stay_on() || self.in_cycle();
        let failed = asked && doubted && node.last_error.is_some();
        failed || self.may_have_come_on(node)
    }

    /// Whether the power-on of a machine that somebody holds has failed, as far as Ironic knows: it gave up, or its conductor
    /// ended. It shows what it knew before that, though the machine may have come on. Asked for off, it looks. Where the
    /// failure may be older, the power-on may still be on its way and would undo that, so it is waited for first.
    pub(crate) fn may_have_come_on(&self, node: &Node) -> bool {
        let ended = !self.is_in_doubt(Doubt::EarlierFailure) || !may_be_on_its_way(node);
        self.is_held() && self.power_on_was_asked() && node.last_error.is_some() && ended
    }

    /// The failure of the power-on that Ironic took.
    pub(crate) fn failed_power_on<'n>(&self, node: &'n Node) -> Option<&'n String> {
        let taken = self.is(Reason::PoweringOn) && !self.is_in_doubt(Doubt::EarlierFailure);
        node.last_error.as_ref().filter(|_| taken)
    }

    /// Whether the last that Ironic was asked for may be a power-on. One that Ironic was too busy for, or that failed, is
    /// asked for again, which is not written down for every try.
    fn power_on_was_asked(&self) -> bool {
        use Reason::{IronicUnreachable, NodeBusy, PowerFailed, PowerUnknown, PoweringOn};
        self.recorded(|progress| match progress.reason {
            PoweringOn => true,
            PowerFailed | NodeBusy | IronicUnreachable | PowerUnknown => {
                !self.in_cycle() && !self.was_hard() && progress.held_since().is_none()
            }
            _ => progress.doubt == Some(Doubt::Open),
        })
    }

    /// Whether a power-on was asked for, and the machine is off, or nobody has looked since, without an end that is known.
    fn power_on_is_open(&self, node: &Node) -> bool {
        self.power_on_was_asked() && (node.last_error.is_some() || may_be_on_its_way(node))
    }

    /// What is not known of a power-on of a machine that was seen off, for those who hold it after that.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        // Once told it stays: that time has passed alone is worth no write.
        let open = self.is_in_doubt(Doubt::Open) || self.shows(|node| self.power_on_is_open(node));
        open.then_some(Doubt::Open)
    }

    /// Off is believed at the second reading, unless the power was cut: a soft attempt may be behind it, whoever asked
    /// for that one. That it is to be cut says nothing: the machine may have obeyed a soft attempt meanwhile.
    fn off_is_doubtful(&self, node: &Node) -> bool {
        let again = node.off_for.is_some_and(|passed| passed >= OFF_CONFIRM_DELAY);
        let confirmed = again || node.off_proof == OffProof::Twice;
        let news = self.host.powered_on || self.is(Reason::SoftPowerOff);
        let told = self.is(Reason::HardPowerOff) || self.is(Reason::Restarting);
        let was_cut = told && self.was_hard();
        let second = news && !was_cut && !self.must_stay_on();
        self.off_may_have_failed(node) || (second && !confirmed) || self.may_be_coming_on()
    }

    /// Whether somebody holds a machine that is being switched on, or may be: a power-on was asked for, and nothing shows
    /// yet what became of it. Whoever set that hold must not take the machine for fenced.
    pub(crate) fn may_be_coming_on(&self) -> bool {
        let Some(node) = self.node().filter(|_| self.is_held()) else { return false };
        match (node.target, node.power) {
            (Some(Power::On), power) => power != Power::On,
            (None, Power::Off) => self.power_on_is_open(node),
            // Its management controller was lost on the way.
            (None, Power::Unknown) => {
                let asked = self.is(Reason::PoweringOn) || self.is_in_doubt(Doubt::Open);
                let waits =
                    matches!(self.reason(), Some(Reason::PowerUnknown | Reason::IronicUnreachable));
                let begun = self.recorded(|progress| progress.rebooting);
                asked || (waits && begun && !self.in_cycle())
            }
            _ => false,
        }
    }

    /// Off, so that a fence can rely on it.
    pub(crate) fn is_off(&self) -> bool {
        self.shows(|node| node.shows_off() && !self.off_is_doubtful(node))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.shows(|node| node.power == Power::On)
    }

    /// Time since a whole second; none if that is in the future.
    pub(crate) fn age(&self, since: Timestamp) -> Duration {
        until(since, self.exact)
    }

    /// Whether Ironic has lost the management controller of a host of which nobody asks anything. It may have another password, and
    /// only the operator tells Ironic so. Whoever asks for off has Ironic try all the same.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let lost = |node: &Node| node.power == Power::Unknown && node.target.is_none();
        self.shows(lost) && self.requests.is_empty() && !self.in_cycle()
    }

    /// Whether somebody else switches the machine, too: the operator, where it was not asked to leave that to us.
    pub(crate) fn is_disputed(&self) -> bool {
        self.host.other_writer && !self.policy.takeover && self.host.paused == Pause::No
    }

    /// Whether the operator is to have the host while we keep it from it.
    pub(crate) fn is_wanted_back(&self) -> bool {
        let host = self.host;
        host.paused == Pause::ByUs
            && (!self.policy.takeover
                || self.seen.node == NodeSeen::Missing
                || self.registration_is_under_way()
                || self.only_node_stays_on()
                || self.is_out_of_reach()
                || host.deleting
                || host.detached
                || host.needs_operator
                || !host.selected
                || !host.credentials
                || !host.state.is_provisioned())
    }

    /// Whether handing the host over now would leave something half done.
    pub(crate) fn is_in_the_middle(&self) -> bool {
        // Nothing is ended of which nobody can read what it was.
        if matches!(self.record, Kept::Unreadable(_)) {
            return false;
        }
        let node = match &self.seen.node {
            NodeSeen::Seen(node) => node,
            // An Ironic that is gone for good must not keep a deleted host. It changes nothing of a cycle that was begun.
            NodeSeen::Unanswered { lasting, .. } => {
                return !(*lasting && self.host.deleting && !self.in_cycle());
            }
            // Without a node nothing can be ended.
            NodeSeen::Missing => return false,
            // What waits for a free attempt was accepted, and its record would have it carried out much later.
            NodeSeen::NotAsked => {
                return self.host.credentials && !self.host.deleting && self.in_cycle();
            }
        };
        let calling =
            [Reason::SoftPowerOff, Reason::HardPowerOff, Reason::PoweringOn, Reason::Restarting];
        // A host that is being deleted is not asked for off once more, so a doubt about that would never end. That it may
        // have come on is told first.
        let doubtful = self.off_may_have_failed(node) && !self.may_have_come_on(node);
        let endless = self.host.deleting && self.shows(Node::shows_off) && doubtful;
        let changing = node.target.is_some()
            || (self.reason().is_some_and(|reason| calling.contains(&reason))
                && node.power != Power::Unknown
                && self.host.powered_on != self.is_on()
                && !endless);
        // A host that is being deleted, or is not to be on, is not switched on again, so its cycle does not end; nor does one of
        // which what was held off is to go, while the client that held it off may be gone.
        let stays_off = !self.host.online || self.host.cleared;
        let parked = stays_off && !self.host.powered_on && self.is_off();
        // The operator would install the other image, and with that switch on what a client holds off.
        let replaced = self.host.needs_operator && !self.host.cleared && !self.must_stay_on();
        let held = replaced && self.is_held() && !self.is_out_of_sight();
        changing || (!self.host.deleting && (held || (!parked && self.in_cycle())))
    }

    /// Whether a rule that would leave the host alone has to wait for the end of what was begun.
    pub(crate) fn is_to_be_finished(&self) -> bool {
        self.is_wanted_back() && self.is_in_the_middle()
    }

    /// Whether the record says that the machine is off and will stay so, which only holds while somebody looks after it.
    pub(crate) fn claims_off(&self) -> bool {
        self.held_since().is_some()
            || matches!(self.reason(), Some(Reason::Offline | Reason::PoweredOff))
    }

    /// Whether the host was provisioned while it was ours, or was to be, and not deprovisioned under our eyes since.
    pub(crate) fn was_ours(&self) -> bool {
        let managed = [Reason::Managed, Reason::TwoWriters];
        let managed = self.host.managed().is_some_and(|it| managed.contains(&it.reason));
        managed || self.record.known().is_some_and(|record| record.was_provisioned)
    }

    /// Whether something is to be done, or may be, once more is known of the node.
    pub(crate) fn waits(&self) -> bool {
        self.in_cycle()
            || !self.requests.is_empty()
            || self.host.online != self.host.powered_on
            || self.is_wanted_back()
    }

    /// Whether the record says more than that something is waited for: the hold, the reset that may not be repeated.
    pub(crate) fn tells(&self) -> bool {
        (self.held_since().is_some() && self.is_held())
            || self.recorded(|progress| match progress.reason {
                // Who holds it is told nothing by that.
                Reason::Offline => !self.host.online && !self.is_held(),
                Reason::HoldUnsupported | Reason::Restarting => true,
                Reason::PowerFailed => !progress.has_merely_failed(),
                _ => false,
            })
    }
}

/// Whether a power-on of which the answer was lost may still be on its way, should there be one.
fn may_be_on_its_way(node: &Node) -> bool {
    node.off_for.is_none_or(|passed| passed < POWER_ON_LOST)
}

pub(crate) fn second_after(time: Timestamp) -> Timestamp {
    time.checked_add(1.second()).unwrap_or(time)
}
