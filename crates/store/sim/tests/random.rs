//! The values that are drawn from a seed.

use sprat_sim::random::Random;

#[test]
fn seeds_keep_their_numbers() {
    let mut random = Random::new(0);
    let mut fork = random.fork();
    assert_eq!(
        [fork.draw(), fork.draw()],
        [12_035_550_249_420_947_055, 12_935_080_325_729_570_654]
    );
    assert_eq!(random.draw(), 7_960_286_522_194_355_700);
    assert_eq!([random.below(1000), random.below(1000)], [679, 444]);

    let mut random = Random::new(0);
    assert_eq!([random.between(1, 1000), random.between(1, 1000)], [536, 701]);
    assert_eq!(*random.pick(&[0, 1, 2, 3, 4]), 4);
    assert_eq!(random.micros(1, 2).as_nanos(), 1000 + 17_909_611_376_780_542_444 % 1001);
    assert!(Random::new(0).chance(36, 100) && !Random::new(0).chance(35, 100));
}
