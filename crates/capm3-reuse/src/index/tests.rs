//! Which of several hosts is chosen, waited for, offered or passed over.

use serde_json::{Value, json};

use super::*;
use crate::decide::tests::{cached, consumer, host, kept_for, owner, with};
use api_types::names;

fn pending() -> Value {
    let text = reservation::as_pending(Some(&owner()), "ns");
    json!({"metadata": {"annotations": {names::ferrite::PENDING_RESERVATION: text}}})
}

fn unhealthy() -> Value {
    json!({"metadata": {"annotations": {names::capm3::UNHEALTHY: ""}}})
}

fn in_domain(domain: &str) -> Value {
    json!({"metadata": {"labels": {names::capm3::FAILURE_DOMAIN: domain}}})
}

/// A host in this state with all of these changes.
fn like(name: &str, state: &str, patches: &[Value]) -> BareMetalHost {
    patches.iter().fold(host(name, state), |host, patch| with(&host, patch))
}

fn index(hosts: &[BareMetalHost]) -> Index {
    index_of(None, hosts)
}

fn index_of(watch_filter: Option<&str>, hosts: &[BareMetalHost]) -> Index {
    let mut index = Index::filtered(watch_filter.map(str::to_owned));
    for host in hosts {
        let name = host.metadata.name.clone().unwrap();
        index.update("ns", &name, Some(cached(host)));
    }
    index
}

fn wish() -> Wish {
    Wish {
        namespace: "ns".to_owned(),
        machine: "m".to_owned(),
        owner: Some(owner()),
        ..Wish::default()
    }
}

/// How many hosts are free, reserved, claimed and excluded.
fn counts(index: &Index) -> [usize; 4] {
    let counts = index.counts();
    assert_eq!(counts.map(|it| it.0), ["free", "reserved", "claimed", "excluded"]);
    counts.map(|it| it.1)
}

/// Places all over the order of free hosts.
fn chances() -> impl Iterator<Item = u64> {
    (0..16).map(|part| part << 60)
}

fn name(host: Option<&Arc<CachedHost>>) -> Option<&str> {
    host.and_then(|it| it.metadata.name.as_deref())
}

/// What is there of kept hosts: the one to take, the one to wait for, the one that is no good.
fn kept(choice: &Choice) -> (Option<&str>, Option<&str>, Option<&str>) {
    let unfit = choice.unfit.as_ref().map(|(name, _)| name.as_str());
    (name(choice.kept.as_ref()), choice.on_its_way.as_deref(), unfit)
}

#[test]
fn a_host_that_will_be_kept_is_waited_for_until_its_machine_gives_it_back() {
    let leaving = consumer("before", "before-uid");
    for (state, more, wanted) in [
        ("provisioned", json!({}), (None, Some("h"), None)),
        ("deprovisioning", json!({}), (None, Some("h"), None)),
        // Cleared already, and the machine's last write is still to come.
        ("available", json!({}), (None, Some("h"), None)),
        ("ready", json!({}), (None, Some("h"), None)),
        ("available", unhealthy(), (None, None, Some("h"))),
        ("error of a kind to come", json!({}), (None, None, Some("h"))),
    ] {
        let it = like("h", state, &[leaving.clone(), pending(), more]);
        let choice = index(&[it]).choose(&wish(), 0);
        assert_eq!(kept(&choice), wanted, "{state}");
    }
}

#[test]
fn every_host_that_names_a_machine_is_known_until_it_does_not() {
    let its = |name: &str| like(name, "provisioned", &[consumer("m", "m-uid")]);
    let mut index = index(&[its("a"), its("b"), host("c", "available")]);
    let names = |index: &Index| -> Vec<String> {
        let all = index.hosts_of("ns", "m");
        all.iter().map(|it| it.metadata.name.clone().unwrap()).collect()
    };
    assert_eq!(names(&index), ["a", "b"]);
    // Whichever was seen last.
    index.update("ns", "a", Some(cached(&its("a"))));
    index.update("ns", "b", Some(cached(&host("b", "available"))));
    assert_eq!(names(&index), ["a"]);
    index.update("ns", "a", None);
    assert!(names(&index).is_empty());
}

#[test]
fn a_kept_host_with_a_passing_error_is_waited_for_and_a_broken_one_is_not() {
    let failed = |count: i64| {
        let status = json!({"status": {"errorMessage": "no power", "errorCount": count}});
        like("h", "deprovisioning", &[kept_for(&owner()), status])
    };
    let mut all = index(&[failed(1), host("free", "available")]);
    assert_eq!(kept(&all.choose(&wish(), 0)), (None, Some("h"), None));
    all.settle("ns", "m");
    assert!(!all.wait(wish(), Wants::Kept));
    let mut update = |host: BareMetalHost| all.update("ns", "h", Some(cached(&host)));
    assert!(update(failed(2)).is_empty(), "and it goes on waiting");
    assert_eq!(update(failed(9)), ["m"], "let down");
    // Nor does it sleep when the host is well again.
    all.wait(wish(), Wants::OnlyKept);
    let well = like("h", "deprovisioning", &[kept_for(&owner())]);
    assert_eq!(all.update("ns", "h", Some(cached(&well))), ["m"]);
}

#[test]
fn a_kept_host_that_is_not_ready_never_blocks_one_that_is() {
    for (state, more) in [
        ("deprovisioning", json!({})),
        ("inspecting", json!({})),
        ("available", unhealthy()),
        ("provisioned", pending()),
    ] {
        let late = like("a", state, &[kept_for(&owner()), more]);
        let ready = like("b", "available", &[kept_for(&owner())]);
        for hosts in [[late.clone(), ready.clone()], [ready, late]] {
            let choice = index(&hosts).choose(&wish(), 0);
            assert_eq!(name(choice.kept.as_ref()), Some("b"), "{state}");
        }
    }
}

#[test]
fn of_several_kept_hosts_one_in_the_failure_domain_is_taken_and_any_if_there_is_none() {
    let here = |name: &str, domain: &str| {
        like(name, "available", &[kept_for(&owner()), in_domain(domain)])
    };
    for (domain, wanted) in [("west", "c"), ("east", "a"), ("north", "a")] {
        let mut all = index(&[here("a", "east"), here("b", "east"), here("c", "west")]);
        let wish = Wish { failure_domain: Some(domain.to_owned()), ..wish() };
        let choice = all.choose(&wish, 0);
        assert_eq!(name(choice.kept.as_ref()), Some(wanted), "{domain}");
    }
}

#[test]
fn a_free_host_has_one_of_the_values_that_are_wanted_wherever_one_begins() {
    let here = |name: &str, rack: &str| {
        like(name, "available", &[json!({"metadata": {"labels": {"rack": rack}}})])
    };
    let hosts = [here("a", "1"), here("b", "2"), here("c", "3"), here("d", "2")];
    let one_of = |values: &[&str]| {
        let values = values.iter().map(|it| (*it).to_owned()).collect();
        let requirement = api_types::capm3::Requirement {
            key: "rack".to_owned(),
            operator: "In".to_owned(),
            values,
            ..Default::default()
        };
        let selector = api_types::capm3::HostSelector {
            match_expressions: vec![requirement],
            ..Default::default()
        };
        Wish { selector: Selector::read(&selector).unwrap(), ..wish() }
    };
    let found = |values: &[&str]| -> BTreeSet<String> {
        let wish = one_of(values);
        let choose = |chance| index(&hosts).choose(&wish, chance).free;
        chances().filter_map(choose).map(|it| it.metadata.name.clone().unwrap()).collect()
    };
    let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    assert!(found(&["3", "2"]).is_subset(&names(&["b", "c", "d"])));
    assert_eq!(found(&["2", "9"]), names(&["b", "d"]));
    assert_eq!(found(&["9", "8"]), names(&[]));
}

#[test]
fn a_free_host_has_all_labels_that_are_wanted_whichever_is_the_rarest_and_is_as_it_was_seen_last() {
    let here = |name: &str, rack: &str, size: &str, version: &str| {
        let labels = json!({"rack": rack, "size": size});
        let metadata = json!({"labels": labels, "resourceVersion": version});
        like(name, "available", &[json!({"metadata": metadata})])
    };
    let hosts = [
        here("a", "1", "big", "5"),
        here("b", "1", "small", "5"),
        here("c", "2", "big", "5"),
        here("a", "1", "big", "6"),
    ];
    for (rack, size, wanted) in [
        ("1", "big", Some(("a", "6"))),
        ("1", "small", Some(("b", "5"))),
        ("2", "big", Some(("c", "5"))),
        ("2", "small", None),
        ("3", "big", None),
    ] {
        let mut wish = wish();
        let labels = [("rack", rack), ("size", size)];
        wish.selector.equals = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for chance in chances() {
            let found = index(&hosts).choose(&wish, chance).free;
            let version = found.as_ref().and_then(|it| it.metadata.resource_version.as_deref());
            assert_eq!(name(found.as_ref()).zip(version), wanted, "{rack} {size} {chance}");
        }
    }
}

#[test]
fn a_free_host_stands_in_the_failure_domain_if_one_does() {
    let here = |name: &str, domain: &str| like(name, "available", &[in_domain(domain)]);
    for chance in chances() {
        let mut all = index(&[here("a", "east"), here("b", "west"), here("c", "east")]);
        let west = Wish { failure_domain: Some("west".to_owned()), ..wish() };
        assert_eq!(name(all.choose(&west, chance).free.as_ref()), Some("b"));
        let north = Wish { failure_domain: Some("north".to_owned()), ..west };
        assert!(all.choose(&north, chance).free.is_some());
    }
}

#[test]
fn what_is_kept_for_another_owner_or_used_by_others_is_not_there() {
    let later = Owner { uid: "later".to_owned(), ..owner() };
    let mut all = index(&[
        like("a", "available", &[kept_for(&later)]),
        like("b", "available", &[consumer("other", "x")]),
        like("c", "available", &[json!({"spec": {"consumerRef": {"kind": "ConfigMap"}}})]),
        like("d", "available", &[json!({"spec": {"image": {"url": "http://a/b"}}})]),
    ]);
    let choice = all.choose(&wish(), 0);
    assert_eq!((kept(&choice), choice.free.is_none()), ((None, None, None), true));
}

#[test]
fn a_host_whose_name_is_too_long_is_passed_over_and_named_only_if_it_is_kept() {
    let wish = Wish { name_bytes: Some(4), owner: None, ..wish() };
    let mut both = index(&[host("long-name", "available"), host("h", "available")]);
    for chance in chances() {
        assert_eq!(name(both.choose(&wish, chance).free.as_ref()), Some("h"));
    }
    let mut alone = index(&[host("long-name", "available")]);
    assert!(alone.choose(&wish, 0).free.is_none());
    // Who waits is not woken for it either, again and again.
    assert!(!alone.wait(wish, Wants::Any));
    let again = cached(&host("long-name", "available"));
    assert_eq!(alone.update("ns", "long-name", Some(again)), [""; 0]);
    let kept_one = like("long-name", "available", &[kept_for(&owner())]);
    let wish = Wish { name_bytes: Some(4), ..self::wish() };
    let choice = index(&[kept_one]).choose(&wish, 0);
    assert_eq!(kept(&choice), (None, None, Some("long-name")));
}

fn watched_by(value: &str) -> Value {
    json!({"metadata": {"labels": {names::capi::WATCH_FILTER: value}}})
}

#[test]
fn a_free_host_with_the_watch_label_of_others_is_neither_chosen_nor_offered_nor_counted() {
    for (filter, label, ours) in [
        (Some("a"), Some("b"), false),
        (Some("a"), Some(""), false),
        (Some("a"), Some("a"), true),
        // Without the label it is anybody's.
        (Some("a"), None, true),
        (None, Some("b"), true),
    ] {
        let label = label.map_or_else(|| json!({}), watched_by);
        let it = like("h", "available", std::slice::from_ref(&label));
        let mut all = index_of(filter, std::slice::from_ref(&it));
        let (free, excluded) = (usize::from(ours), usize::from(!ours));
        assert_eq!(counts(&all), [free, 0, 0, excluded], "{label}");
        let choice = all.choose(&wish(), 0);
        assert_eq!((choice.free.is_some(), choice.labelled), (ours, None), "{filter:?} {label}");
        // Who waits is not woken for it.
        let mut all = index_of(filter, &[]);
        assert!(!all.wait(wish(), Wants::Any));
        assert_eq!(all.update("ns", "h", Some(cached(&it))).is_empty(), !ours);
        // To take a label of CAPM3 from it would help nobody here.
        let capm3s = json!({"metadata": {"labels": {names::capm3::NODE_REUSE: "md-gone"}}});
        let choice = index_of(filter, &[with(&it, &capm3s)]).choose(&wish(), 0);
        assert_eq!(choice.labelled.is_some(), ours, "{filter:?} {label}");
    }
}

#[test]
fn a_host_that_is_kept_for_our_owner_and_has_the_watch_label_of_others_is_named_and_not_taken() {
    let leaving = [consumer("before", "before-uid"), pending()];
    let kept_one = [kept_for(&owner())];
    for (state, reserved) in
        [("available", &kept_one[..]), ("deprovisioning", &kept_one), ("provisioned", &leaving)]
    {
        let here = like("h", state, reserved);
        let others = with(&here, &watched_by("b"));
        let choice = index_of(Some("a"), std::slice::from_ref(&others)).choose(&wish(), 0);
        assert_eq!(kept(&choice), (None, None, Some("h")), "{state}");
        assert_eq!(choice.unfit.unwrap().1, Unfit::OfOthers);
        for (filter, label) in [(None, watched_by("b")), (Some("a"), json!({}))] {
            let choice = index_of(filter, &[with(&here, &label)]).choose(&wish(), 0);
            assert_eq!(choice.unfit, None, "{state}");
        }
        // Who waits for it does so in vain, and is not woken for it.
        let mut all = index_of(Some("a"), std::slice::from_ref(&others));
        assert!(all.wait(wish(), Wants::Kept));
        all.leave("ns", "m");
        assert!(!all.wait(wish(), Wants::Any));
        let woken = all.update("ns", "h", Some(cached(&others)));
        assert!(!woken.contains(&"m".to_owned()), "{state}");
    }
}

#[test]
fn a_host_that_a_machine_has_stays_its_own_whatever_its_watch_label() {
    let own = like("h", "provisioned", &[consumer("m", "m-uid"), watched_by("b")]);
    let all = index_of(Some("a"), &[own]);
    assert_eq!(all.hosts_of("ns", "m").len(), 1);
    assert_eq!(counts(&all), [0, 0, 1, 0]);
}

#[test]
fn a_host_is_tried_by_one_machine_at_a_time_and_by_the_next_when_that_one_does_not_take_it() {
    let mut all = index(&[host("h", "available")]);
    let other = Wish { machine: "n".to_owned(), since: second(1), ..wish() };
    assert!(all.choose(&wish(), 0).free.is_some());
    assert!(all.choose(&other, 0).free.is_none());
    assert!(!all.wait(other, Wants::Any));
    assert_eq!(all.settle("ns", "m"), ["n"]);
    // It is held back for the one that is called, and nobody tries it when that one has got it.
    assert!(all.choose(&wish(), 0).free.is_none());
    all.took("ns", "h");
    assert_eq!(all.settle("ns", "n"), [""; 0]);
    assert!(all.choose(&wish(), 0).free.is_none());
    // As soon as it is seen, what is seen counts.
    all.update("ns", "h", Some(cached(&like("h", "available", &[consumer("n", "n-uid")]))));
    assert!(all.choose(&wish(), 0).free.is_none());
    all.took("ns", "h");
    assert_eq!(all.hosts_of("ns", "n").len(), 1, "the watch was faster than the answer");
    all.update("ns", "h", Some(cached(&host("h", "available"))));
    assert!(all.choose(&wish(), 0).free.is_some());
}

/// Without that a hundred machines that are made at once for a hundred hosts have some forty conflicts of three writes each.
#[test]
fn machines_of_a_rush_that_are_looked_at_together_try_different_hosts() {
    let hosts: Vec<_> = (0..32).map(|it| host(&format!("h{it}"), "available")).collect();
    let mut all = index(&hosts);
    let mut chosen = BTreeSet::new();
    for machine in 0..32 {
        let wish = Wish { machine: format!("m{machine}"), ..wish() };
        let free = all.choose(&wish, 0).free.unwrap();
        assert!(chosen.insert(free.metadata.name.clone()));
    }
    assert!(all.choose(&wish(), 0).free.is_none());
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Nobody has anything, and these wait for any host since then.
fn queue(waiters: &[(&str, i64)]) -> Index {
    let mut all = index(&[]);
    for (machine, since) in waiters {
        let wish = Wish { machine: (*machine).to_owned(), since: second(*since), ..wish() };
        assert!(!all.wait(wish, Wants::Any));
    }
    all
}

#[test]
fn of_hosts_that_are_ready_together_each_waiter_is_offered_one() {
    let mut all = queue(&[("m", 1), ("n", 2)]);
    for (name, woken) in [("a", vec!["m"]), ("b", vec!["n"]), ("c", vec![])] {
        let ready = Some(cached(&host(name, "available")));
        assert_eq!(all.update("ns", name, ready), woken, "{name}");
    }
    // Who is called waits no longer. One that finds nothing and is to wait again looks at what came meanwhile.
    assert_eq!(all.waiters(), 0);
    assert!(all.wait(Wish { since: second(1), ..wish() }, Wants::Any));
}

#[test]
fn what_a_machine_left_or_refused_goes_to_whoever_is_first() {
    for taken in [Some("b"), None] {
        let mut all = queue(&[("m", 2), ("n", 3)]);
        let ready = Some(cached(&host("a", "available")));
        assert_eq!(all.update("ns", "a", ready), ["m"]);
        // Made before both of them, and looked at last: the only host is held back by then.
        let late = Wish { machine: "late".to_owned(), since: second(1), ..wish() };
        assert!(!all.wait(late, Wants::Any));
        all.leave("ns", "m");
        taken.inspect(|host| all.took("ns", host));
        assert_eq!(all.settle("ns", "m"), ["late"]);
    }
}

#[test]
fn who_waits_for_a_kept_host_hears_when_it_is_ready_and_when_it_is_lost() {
    for (after, woken) in [
        (Some(like("h", "available", &[kept_for(&owner())])), vec!["m".to_owned()]),
        (Some(like("h", "inspecting", &[kept_for(&owner())])), vec![]),
        (
            Some(like("h", "deprovisioning", &[kept_for(&owner()), unhealthy()])),
            vec!["m".to_owned()],
        ),
        (None, vec!["m".to_owned()]),
    ] {
        let mut all = index(&[like("h", "deprovisioning", &[kept_for(&owner())])]);
        assert!(!all.wait(wish(), Wants::Kept));
        let after = after.as_ref().map(cached);
        assert_eq!(all.update("ns", "h", after), woken);
    }
}

#[test]
fn who_waits_for_a_kept_host_is_let_down_only_with_the_last_one_of_its_owner() {
    let other = Owner { name: "other".to_owned(), ..owner() };
    let clearing = |name: &str| like(name, "deprovisioning", &[kept_for(&owner())]);
    let mut all = index(&[clearing("a"), clearing("b")]);
    for (machine, owner, since, wants) in [
        ("m", owner(), 1, Wants::Kept),
        ("strict", owner(), 2, Wants::OnlyKept),
        ("any", owner(), 2, Wants::Any),
        ("other", other, 0, Wants::Any),
    ] {
        let since = second(since);
        let wish = Wish { machine: machine.to_owned(), owner: Some(owner), since, ..wish() };
        assert!(!all.wait(wish, wants));
    }
    assert_eq!(all.update("ns", "a", None), [""; 0]);
    let sick = like("b", "deprovisioning", &[kept_for(&owner()), unhealthy()]);
    assert_eq!(all.update("ns", "b", Some(cached(&sick))), ["m"]);
}

/// Machines that wait for a host that is on its way, in this order.
fn kept_waiter(machine: &str, since: i64) -> Wish {
    Wish { machine: machine.to_owned(), since: second(since), ..wish() }
}

#[test]
fn no_more_machines_wait_for_kept_hosts_than_are_on_their_way_and_the_first_of_them_do() {
    let clearing = |name: &str| like(name, "deprovisioning", &[kept_for(&owner())]);
    let mut all = index(&[clearing("a"), clearing("b"), host("free", "available")]);
    let behind = |all: &mut Index, machine: &str, since: i64| {
        let choice = all.choose(&kept_waiter(machine, since), 0);
        all.settle("ns", machine);
        assert!(choice.on_its_way.is_some() && choice.free.is_some());
        choice.behind
    };
    assert!(!behind(&mut all, "m", 1));
    assert!(!all.wait(kept_waiter("m", 1), Wants::Kept));
    assert!(!behind(&mut all, "n", 3));
    assert!(!all.wait(kept_waiter("n", 3), Wants::Kept));
    // The third takes a free one, and one of another owner does not count.
    assert!(behind(&mut all, "o", 4));
    // One that comes late and was made before takes the place of the last.
    assert!(!behind(&mut all, "l", 2));
    assert!(!all.wait(kept_waiter("l", 2), Wants::Kept));
    assert_eq!(all.settle("ns", "l"), ["n"]);
    // Who found that there is a place for it just before another came looks again.
    assert!(all.wait(kept_waiter("o", 4), Wants::Kept));
    all.leave("ns", "n");
    all.leave("ns", "o");
    // The one that is offered its host does not stand before the other any more.
    let ready = like("a", "available", &[kept_for(&owner())]);
    assert_eq!(all.update("ns", "a", Some(cached(&ready))), ["m"]);
    // And when the other host is lost, only the other machine is let down.
    assert_eq!(all.update("ns", "b", None), ["l"]);
}

#[test]
fn a_host_that_starts_on_its_way_wakes_the_first_who_has_no_other_to_wait_for() {
    let other = Owner { name: "other".to_owned(), ..owner() };
    let before = || like("h", "provisioned", &[consumer("before", "before-uid")]);
    let waiters = |all: &mut Index, first: Wants| {
        let mut elsewhere = kept_waiter("elsewhere", 1);
        elsewhere.selector.equals = [("rack".to_owned(), "b".to_owned())].into();
        let foreign = Wish { owner: Some(other.clone()), ..kept_waiter("foreign", 1) };
        for (wish, wants) in [
            (elsewhere, Wants::Any),
            (foreign, Wants::Any),
            (Wish { owner: None, ..kept_waiter("without", 1) }, Wants::Any),
            (kept_waiter("m", 2), first),
            (kept_waiter("n", 3), Wants::Any),
            (kept_waiter("o", 4), Wants::Any),
        ] {
            assert!(!all.wait(wish, wants));
        }
    };
    for (after, first, woken) in [
        (
            like("h", "provisioned", &[consumer("before", "before-uid"), pending()]),
            Wants::Any,
            vec!["before", "m"],
        ),
        (like("h", "deprovisioning", &[kept_for(&owner())]), Wants::OnlyKept, vec!["before", "m"]),
        (
            like("h", "deprovisioning", &[kept_for(&owner()), unhealthy()]),
            Wants::Any,
            vec!["before"],
        ),
        (like("h", "deprovisioning", &[]), Wants::Any, vec!["before"]),
    ] {
        let mut all = index(&[before()]);
        waiters(&mut all, first);
        assert_eq!(all.update("ns", "h", Some(cached(&after))), woken);
        // It is told once, and not again with each change of the host.
        let changed = with(&after, &json!({"metadata": {"labels": {"any": "thing"}}}));
        assert!(!all.update("ns", "h", Some(cached(&changed))).contains(&"m".to_owned()));
    }
    // Who waits for one already has his; the next host is for the next machine.
    let mut all = index(&[before(), like("a", "deprovisioning", &[kept_for(&owner())])]);
    waiters(&mut all, Wants::Kept);
    let after = like("h", "deprovisioning", &[kept_for(&owner())]);
    assert_eq!(all.update("ns", "h", Some(cached(&after))), ["before", "n"]);
    // Where two come at once, each of them wakes one.
    let mut all = index(&[before()]);
    waiters(&mut all, Wants::Any);
    for (host, woken) in [("h", "m"), ("i", "n")] {
        let after = like(host, "deprovisioning", &[kept_for(&owner())]);
        assert!(all.update("ns", host, Some(cached(&after))).contains(&woken.to_owned()));
    }
}

#[test]
fn what_is_on_its_way_for_an_owner_that_is_gone_is_nothing_to_one_made_anew_under_its_name() {
    let clearing = |name: &str| like(name, "deprovisioning", &[kept_for(&owner())]);
    let mut all = index(&[clearing("a"), clearing("b")]);
    assert!(!all.wait(kept_waiter("m", 1), Wants::Kept));
    let anew = Owner { uid: "another".to_owned(), ..owner() };
    let next = Wish { owner: Some(anew), ..kept_waiter("n", 2) };
    assert_eq!(all.choose(&next, 0).on_its_way, None);
    assert!(all.wait(next, Wants::Kept), "nothing is on its way for it");
}

#[test]
fn one_that_wants_other_hosts_stands_before_nobody() {
    let mut all = index(&[like("a", "deprovisioning", &[kept_for(&owner())])]);
    let mut other = kept_waiter("m", 1);
    other.selector.equals = [("rack".to_owned(), "b".to_owned())].into();
    assert!(!all.wait(other, Wants::Any));
    assert!(!all.choose(&kept_waiter("n", 2), 0).behind);
    assert!(!all.wait(kept_waiter("n", 2), Wants::Kept));
}

#[test]
fn a_host_that_only_a_label_of_capm3_keeps_is_named_where_there_is_no_other() {
    let label = json!({"metadata": {"labels": {names::capm3::NODE_REUSE: "md-gone"}}});
    let labelled = like("a", "available", std::slice::from_ref(&label));
    let choice = index(std::slice::from_ref(&labelled)).choose(&wish(), 0);
    assert_eq!((choice.free.is_none(), choice.labelled.as_deref()), (true, Some("a")));
    let choice = index(&[labelled.clone(), host("b", "available")]).choose(&wish(), 0);
    assert_eq!((name(choice.free.as_ref()), choice.labelled), (Some("b"), None));
    for more in [unhealthy(), kept_for(&Owner { name: "other".to_owned(), ..owner() })] {
        let other = like("a", "available", &[label.clone(), more]);
        assert_eq!(index(&[other]).choose(&wish(), 0).labelled, None);
    }
    // Without the label it is offered like any other.
    let mut all = index(&[labelled]);
    assert!(!all.wait(wish(), Wants::Any));
    assert_eq!(all.update("ns", "a", Some(cached(&host("a", "available")))), ["m"]);
}

#[test]
fn a_kept_host_that_the_selector_does_not_want_is_named_with_that_reason() {
    let selector = api_types::capm3::HostSelector {
        match_labels: [("rack".to_owned(), "b".to_owned())].into(),
        ..Default::default()
    };
    let wish = Wish { selector: Selector::read(&selector).unwrap(), ..wish() };
    for state in ["available", "deprovisioning"] {
        let choice = index(&[like("h", state, &[kept_for(&owner())])]).choose(&wish, 0);
        assert_eq!(kept(&choice), (None, None, Some("h")), "{state}");
        assert_eq!(choice.unfit.unwrap().1, Unfit::NotSelected);
    }
}

#[test]
fn what_is_held_back_for_a_machine_that_is_gone_goes_to_the_next() {
    let mut all = queue(&[("gone", 1), ("n", 2)]);
    let ready = |name: &str| Some(cached(&host(name, "available")));
    assert_eq!(all.update("ns", "a", ready("a")), ["gone"]);
    assert_eq!(all.gone("ns", "gone"), ["n"]);
    // Who is gone does not stand in anybody's way any more.
    assert_eq!(all.waiters(), 0);
    assert_eq!(all.update("ns", "b", ready("b")), [""; 0]);
    // What a machine found by itself and did not take is offered as well.
    let mut all = index(&[host("h", "available")]);
    assert!(all.choose(&wish(), 0).free.is_some());
    let other = Wish { machine: "n".to_owned(), since: second(1), ..wish() };
    assert!(!all.wait(other, Wants::Any));
    assert_eq!(all.gone("ns", "m"), ["n"]);
}

/// Or it would wake at once, take that host again and give it up again, for as long as a watch stands still.
#[test]
fn a_machine_that_gave_a_kept_host_up_is_not_offered_it_again() {
    let kept = like("h", "available", &[kept_for(&owner())]);
    let mut all = index(std::slice::from_ref(&kept));
    let without = Wish { except: Some("h".to_owned()), ..wish() };
    assert!(!all.wait(without, Wants::Any));
    assert!(all.update("ns", "h", Some(cached(&kept))).is_empty());
    assert!(all.wait(wish(), Wants::Any), "another one is");
}

/// BMO wrote an error, or `bmo-reboot` its pause, just before the claim: that passes within a minute.
#[test]
fn a_kept_host_given_up_for_a_passing_trouble_is_waited_for() {
    let pause = |by: &str| json!({"metadata": {"annotations": {names::metal3::PAUSED: by}}});
    let failed = json!({"status": {"errorMessage": "no power", "errorCount": 1}});
    for (trouble, wanted) in [
        (failed, (None, Some("h"), None)),
        (pause(names::ferrite::PAUSED_BY_BMO_REBOOT), (None, Some("h"), None)),
        (pause(""), (None, None, Some("h"))),
        (unhealthy(), (None, None, Some("h"))),
        // What is to be seen of it may be older than why it was given up.
        (json!({}), (None, None, None)),
    ] {
        let kept_one = like("h", "available", &[kept_for(&owner()), trouble.clone()]);
        let mut all = index(&[kept_one, host("free", "available")]);
        let without = Wish { except: Some("h".to_owned()), ..wish() };
        let choice = all.choose(&without, 0);
        assert_eq!((kept(&choice), choice.behind), (wanted, false), "{trouble}");
        assert_eq!(name(choice.free.as_ref()), Some("free"));
    }
}

/// Or it says for five minutes that no host is there, though one is on its way to it.
#[test]
fn who_is_next_hears_when_a_machine_that_waited_for_a_kept_host_goes() {
    for (wants, woken) in [(Wants::Kept, vec!["n"]), (Wants::Any, vec![])] {
        let mut all = index(&[like("a", "deprovisioning", &[kept_for(&owner())])]);
        assert!(!all.wait(kept_waiter("m", 1), wants));
        assert!(!all.wait(kept_waiter("n", 2), Wants::Any));
        assert_eq!(all.gone("ns", "m"), woken, "{wants:?}");
        assert_eq!(all.waiters(), 1 - woken.len());
    }
}
