//! All controllers on one API server: the others while one is measured, and all of them at rest on what was made before.

use bench::cluster_api::objects::METAL3_MACHINE;
use bench::controller::Running;
use bench::objects::{HOST, hive};
use bench::steps::step_async;
use futures_util::future::try_join_all;

use super::row::Report;
use super::{Ground, Program, REST, at_work};

/// One after the other while the rest of them run, and all of them at rest in between, on what was made until then. Each
/// program stands beside the number of its row.
pub(super) async fn measure(
    ground: &Ground,
    programs: &[(usize, Program<'_>)],
    only: &str,
    report: &mut Report,
) {
    let made = programs.iter().position(|it| it.1.work.operation.is_none());
    for (number, (row, program)) in programs.iter().enumerate() {
        if made == Some(number) {
            let rest = at_rest(ground, programs, report).await;
            report.unless_failed("all together at rest", rest);
        }
        if program.work.controller.contains(only) {
            let others = programs.iter().filter(|it| it.0 != *row);
            let measured = async {
                let others = try_join_all(others.map(|it| it.1.start())).await?;
                let worked = at_work(program, report, *row).await;
                try_join_all(others.into_iter().map(Running::stop)).await?;
                worked
            };
            let measured = measured.await;
            report.unless_failed(program.work.controller, measured);
        }
    }
}

/// What each has in memory and asks for when all is done.
async fn at_rest(
    ground: &Ground,
    programs: &[(usize, Program<'_>)],
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut there = Vec::new();
    for kind in [HOST, METAL3_MACHINE, hive("ClusterDeployment")] {
        there.push(format!("{} {}s", ground.count(kind).await?, kind.kind));
    }
    step_async(&format!("all together at rest: {}", there.join(", ")), async {
        let all = try_join_all(programs.iter().map(|it| it.1.start())).await?;
        for (_, program) in programs {
            program.rest().await?;
        }
        let counts = ground.during(REST).await?;
        for (running, (row, program)) in all.iter().zip(programs) {
            report.rows[*row].together = Some(program.at_rest(running, &counts)?);
        }
        report.save()?;
        try_join_all(all.into_iter().map(Running::stop)).await.map(drop)
    })
    .await
}
