//! `cargo xtask image`: images without a container engine.

use anyhow::bail;
use bench::image;
use bench::programs::Profile;
use bench::steps::step;

use crate::controllers::PODS;

/// Builds the images, all or one, and says where they are and how large.
///
/// # Errors
/// When there is no such controller, it does not compile, or its image is larger than promised.
pub(crate) fn run(controller: Option<&str>) -> anyhow::Result<()> {
    let wanted: Vec<&str> =
        PODS.iter().copied().filter(|name| controller.is_none_or(|it| it == *name)).collect();
    if wanted.is_empty() {
        bail!("no such controller. There are: {}", PODS.join(", "));
    }
    let images = step("static release builds (minutes, the first time)", || {
        image::build(Profile::Release, &wanted)
    })?;
    for image in images {
        let megabytes = image.bytes as f64 / 1e6;
        println!("{megabytes:>5.1} MB  {}  {}", image.reference, image.archive.display());
        println!("          {}", image.digest);
    }
    Ok(())
}
