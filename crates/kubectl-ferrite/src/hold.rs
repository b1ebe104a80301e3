//! `hold` and `release`: writes a keyed reboot request, and waits until its hold is proven.

use std::time::{Duration, Instant};

use api_types::metal3::BareMetalHost;
use api_types::name::is_name;
use bmo_reboot::requests::Mode;

use crate::ask::{Asking, Failure, nearest};
use crate::holding::{self, Progress};
use crate::terminal::tell;
use crate::write::{Written, annotate};
use crate::{settings, text};

/// How often the host is read: the age of an answer adds to the time that is printed.
const PACE: Duration = Duration::from_secs(1);

/// Sets the request, and waits until its hold is proven. Gives how long that took.
///
/// # Errors
/// When the hold would not be honoured, is not proven in time, or cannot be written.
pub(crate) async fn hold(asking: &Asking, args: &settings::Hold) -> Result<Duration, Failure> {
    let annotation = holding::annotation(&args.key).map_err(Failure::Usage)?;
    let began = Instant::now();
    let holds = async {
        let host = set(asking, args, &annotation).await?;
        proven(asking, args, &annotation, host, began).await
    };
    tokio::select! {
        proof = Box::pin(holds) => proof,
        // Also while the write is under way: the host may be switched off for it, whether its answer is waited for or not.
        Ok(()) = tokio::signal::ctrl_c() => {
            Err(Failure::No(text::hold_lost(text::INTERRUPTED, &annotation)))
        }
    }
}

/// Sets the request, unless it is there. Gives the host that has it.
async fn set(
    asking: &Asking,
    args: &settings::Hold,
    annotation: &str,
) -> Result<BareMetalHost, Failure> {
    let mode = if args.hard { Mode::Hard } else { Mode::Soft };
    loop {
        let host = read(asking, &args.host).await?;
        if let Some(why) = holding::refusal(&host) {
            return Err(Failure::No(why));
        }
        if holding::is_asked(&host, annotation, mode) {
            return Ok(host);
        }
        match annotate(asking, &host, annotation, Some(holding::value(mode))).await {
            Ok(Written::Done(written)) => return Ok(*written),
            // What it was judged by may have changed.
            Ok(Written::Superseded) => {}
            // The API server may have written it all the same.
            Err(Failure::Unanswered(why)) => {
                return Err(Failure::Unanswered(text::hold_lost(&why, annotation)));
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Reads the host until its hold is proven. A read that fails says nothing of the hold, which goes on: it is repeated.
async fn proven(
    asking: &Asking,
    args: &settings::Hold,
    annotation: &str,
    host: BareMetalHost,
    began: Instant,
) -> Result<Duration, Failure> {
    let (mut seen, mut shown) = (Ok(host), String::new());
    loop {
        let (reason, news, why) = match holding::progress_of(&seen, annotation) {
            Progress::Proven => return Ok(began.elapsed()),
            Progress::Lost(why) => return Err(Failure::No(text::hold_lost(&why, annotation))),
            Progress::Unread(why) => (why.clone(), why.clone(), why),
            Progress::Waits(reason, message) => {
                let news = text::hold_reason(&reason, &message);
                let why = text::rebooting_says(&reason);
                (reason, news, why)
            }
        };
        let took = text::age(began.elapsed());
        if args.timeout.is_some_and(|it| began.elapsed() >= it) {
            return Err(Failure::No(text::hold_late(&took, annotation, &why)));
        }
        if !reason.is_empty() && reason != shown {
            tell(&text::hold_waits(&took, &news));
            shown = reason;
        }
        tokio::time::sleep(PACE).await;
        seen = read(asking, &args.host).await;
    }
}

/// Removes the request. Gives the keys that still hold the host.
///
/// # Errors
/// When there is no such request, or it cannot be removed.
pub(crate) async fn release(
    asking: &Asking,
    args: &settings::Release,
) -> Result<Vec<String>, Failure> {
    let annotation = holding::annotation(&args.key).map_err(Failure::Usage)?;
    loop {
        let host = read(asking, &args.host).await?;
        let holds = holding::holds(&host);
        if !holds.contains(&annotation) {
            let near = nearest(&annotation, holds.into_iter());
            return Err(Failure::NotFound(text::no_hold(&args.host, &annotation, &near)));
        }
        if let Written::Done(host) = annotate(asking, &host, &annotation, None).await? {
            return Ok(holding::holds(&host));
        }
    }
}

/// The host of this name.
///
/// # Errors
/// When it does not exist or may not be read.
pub(crate) async fn read(asking: &Asking, name: &str) -> Result<BareMetalHost, Failure> {
    if !is_name(name) {
        return Err(Failure::Usage(text::no_name(name)));
    }
    let found = asking.get::<BareMetalHost>(&[()], &asking.namespace, name).await?;
    let found = asking.must_be_here::<BareMetalHost, _>(&[()], found).await?;
    found.into_here().ok_or_else(|| Failure::Usage(text::no_name(name)))
}
