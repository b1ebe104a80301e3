//! All controllers on one API server: the others while one is measured, and all of them at rest on what was made before.

use std::path::Path;

use bench::cluster_api::objects::METAL3_MACHINE;
use bench::controller::Running;
use bench::objects::{HOST, hive};
use bench::steps::step_async;
use futures_util::future::try_join_all;

use super::row::Report;
use super::{Ground, Options, Program, REST, Work, api_server, at_rest, at_work};

/// One after the other while the rest of them run, and all of them at rest in between, on what was made until then.
pub(super) async fn measure(
    works: &[&Work],
    folder: &Path,
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<()> {
    let ground = Ground { together: true, ..Ground::new("load", options.hosts).await? };
    let mut programs = Vec::new();
    // While the server is empty: what others have left there would be in a cache.
    for work in works {
        let row = report.begin(work.controller, None);
        let measured = async {
            let program = Program::on(&ground, row, work, work.program(folder), false).await?;
            at_rest(&program, report).await?;
            anyhow::Ok(program)
        };
        let measured = measured.await;
        programs.extend(report.unless_failed(work.controller, measured));
    }
    let bare = api_server::measure(&ground, report).await;
    report.unless_failed("the API server by itself", bare);
    // Those come first that make the machines and clusters with which all are then measured.
    let (making, others): (Vec<_>, Vec<_>) = programs.iter().partition(|it| it.work.share > 0.0);
    one_by_one(&making, &programs, options, report).await;
    let rest = all_at_rest(&ground, &programs, report).await;
    report.unless_failed("all together at rest", rest);
    one_by_one(&others, &programs, options, report).await;
    report.save()
}

/// Those that are wanted, each while all others run.
async fn one_by_one(
    some: &[&Program<'_>],
    all: &[Program<'_>],
    options: &Options,
    report: &mut Report,
) {
    let wanted = some.iter().filter(|it| it.work.controller.contains(&options.controller));
    for program in wanted {
        let others = all.iter().filter(|it| it.row != program.row);
        let measured = async {
            let others = try_join_all(others.map(Program::start)).await?;
            let worked = at_work(program, report).await;
            try_join_all(others.into_iter().map(Running::stop)).await?;
            worked
        };
        let measured = measured.await;
        report.unless_failed(program.work.controller, measured);
    }
}

/// What each has in memory and asks for when all is done.
async fn all_at_rest(
    ground: &Ground,
    programs: &[Program<'_>],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut there = Vec::new();
    for kind in [HOST, METAL3_MACHINE, hive("ClusterDeployment")] {
        there.push(format!("{} {}s", ground.count(kind).await?, kind.kind));
    }
    step_async(&format!("all together at rest: {}", there.join(", ")), async {
        let all = try_join_all(programs.iter().map(Program::start)).await?;
        for program in programs {
            program.rest().await?;
        }
        let counts = ground.during(REST).await?;
        for (running, program) in all.iter().zip(programs) {
            report.rows[program.row].together = Some(program.at_rest(running, &counts)?);
        }
        report.save()?;
        try_join_all(all.into_iter().map(Running::stop)).await.map(drop)
    })
    .await
}
