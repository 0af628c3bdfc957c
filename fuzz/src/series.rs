//! Series. Any line is an error, or a sample that keeps its figures when it is encoded again.

use sprat_lab::series::{History, MAX_SAMPLES, Sample};

pub(crate) fn run(text: &[u8]) {
    let Ok(sample) = serde_json::from_slice::<Sample>(text) else { return };
    if sample.check(0.0).is_err() {
        return;
    }
    let again: Sample =
        serde_json::from_str(&serde_json::to_string(&sample).expect("JSON")).expect("ours");
    assert_eq!(again.lines.len(), sample.lines.len());
    let mut history = History::new();
    (0..4).for_each(|_| history.push(sample.clone()));
    assert!(history.samples().count() <= MAX_SAMPLES);
}
