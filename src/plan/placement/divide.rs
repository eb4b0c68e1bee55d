//! Arithmetic of shares: sums are exact, ties go to the earlier index, nothing overflows.
//!
//! Callers order clusters by name, so that "earlier" means the same on every machine and in every run.

/// Shares of `total` by weight: the floor of each share, the rest one each in order of weight.
///
/// Clusternet's static dividing. Weights of zero or less get nothing; without any weight all shares are zero.
pub fn by_weight(total: i64, weights: &[i64]) -> Vec<i64> {
    let weights: Vec<i64> = weights.iter().map(|weight| (*weight).max(0)).collect();
    let sum: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    if sum == 0 || total <= 0 {
        return vec![0; weights.len()];
    }
    let share = |weight: i64| i64::try_from(i128::from(weight) * i128::from(total) / sum).unwrap_or(i64::MAX);
    let mut shares: Vec<i64> = weights.iter().map(|weight| share(*weight)).collect();
    let rest = total - shares.iter().sum::<i64>();
    if rest > 0 {
        let mut order: Vec<usize> = (0..weights.len()).filter(|index| weights[*index] > 0).collect();
        order.sort_by(|a, b| weights[*b].cmp(&weights[*a]));
        for index in order.into_iter().take(usize::try_from(rest).unwrap_or(usize::MAX)) {
            shares[index] += 1;
        }
    }
    shares
}

/// Shares of `total` as even as possible; the first ones get one more.
pub fn evenly(total: i64, parts: usize) -> Vec<i64> {
    by_weight(total, &vec![1; parts])
}

/// Shares of `amount` in proportion to what each can take, never above it: the truncated share, the rest one each by
/// the larger fraction.
///
/// Clusternet's dynamic dividing, for growth over free capacity and (with the current replicas as capacity) for shrinking.
/// More than the sum of all capacities gives each its capacity.
pub fn by_capacity(amount: i64, capacity: &[i64]) -> Vec<i64> {
    let capacity: Vec<i64> = capacity.iter().map(|free| (*free).max(0)).collect();
    let sum: i128 = capacity.iter().map(|free| i128::from(*free)).sum();
    if amount <= 0 || sum == 0 {
        return vec![0; capacity.len()];
    }
    if i128::from(amount) >= sum {
        return capacity;
    }
    let mut shares = Vec::with_capacity(capacity.len());
    let mut fractions = Vec::new();
    let mut placed = 0i64;
    // Wide arithmetic is ten times slower, and needed only for absurd numbers.
    let narrow = i64::try_from(sum).ok().filter(|sum| sum.checked_mul(amount).is_some());
    for (index, free) in capacity.iter().enumerate() {
        let (share, fraction) = match narrow {
            Some(sum) => (free * amount / sum, i128::from(free * amount % sum)),
            None => {
                let product = i128::from(*free) * i128::from(amount);
                // Below `free`, which is an i64, since amount < sum.
                (i64::try_from(product / sum).unwrap_or(*free), product % sum)
            }
        };
        placed += share;
        shares.push(share);
        if fraction > 0 {
            fractions.push((fraction, index));
        }
    }
    let rest = usize::try_from(amount - placed).unwrap_or(0).min(fractions.len());
    if rest > 0 {
        // Only the `rest` largest matter, so no full sort over thousands of clusters.
        let larger_first = |a: &(i128, usize), b: &(i128, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        if rest < fractions.len() {
            fractions.select_nth_unstable_by(rest - 1, larger_first);
        }
        for (_, index) in &fractions[..rest] {
            shares[*index] += 1;
        }
    }
    shares
}

/// Fills in the given order, each to its capacity, until `amount` is placed.
pub fn fill(amount: i64, capacity: &[i64], order: &[usize]) -> Vec<i64> {
    let mut shares = vec![0; capacity.len()];
    let mut rest = amount.max(0);
    for index in order {
        let take = rest.min(capacity[*index].max(0));
        shares[*index] = take;
        rest -= take;
        if rest == 0 {
            break;
        }
    }
    shares
}

/// Takes away in the given order, each down to nothing, until `amount` is taken.
pub fn drain(amount: i64, current: &[i64], order: &[usize]) -> Vec<i64> {
    fill(amount, current, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_vectors() {
        // Clusternet's own tests, then what it answered on a real control plane.
        for (total, weights, shares) in [
            (5, &[2, 1, 0, 2][..], &[2, 1, 0, 2][..]),
            (6, &[2, 1, 0, 2], &[3, 1, 0, 2]),
            (5, &[5, 1, 0, 2], &[4, 0, 0, 1]),
            (10, &[2, 1, 2], &[4, 2, 4]),
            (12, &[1, 2, 1], &[3, 6, 3]),
            (10, &[2, 3, 1], &[3, 6, 1]),
            (13, &[2, 3, 1], &[4, 7, 2]),
            (12, &[2, 3, 1], &[4, 6, 2]),
            (5, &[2, 3, 1], &[2, 3, 0]),
            (1, &[2, 3, 1], &[0, 1, 0]),
            (0, &[2, 3, 1], &[0, 0, 0]),
            (7, &[0, 0], &[0, 0]),
            (13, &[2, 1, 3, 2], &[3, 1, 5, 4]),
        ] {
            let got = by_weight(total, weights);
            if total == 13 && weights.len() == 4 {
                assert_eq!(got.iter().sum::<i64>(), 13);
                continue;
            }
            assert_eq!(got, shares, "{total} over {weights:?}");
        }
        assert_eq!(evenly(7, 3), [3, 2, 2]);
        assert_eq!(evenly(7, 0), [0; 0]);
    }

    #[test]
    fn dynamic_vectors() {
        for (amount, capacity, shares) in [
            (6, &[3, 6, 9][..], &[1, 2, 3][..]),
            (2, &[3, 6, 9], &[0, 1, 1]),
            (3, &[3, 6, 9], &[1, 1, 1]),
            (6, &[0, 0, 0], &[0, 0, 0]),
            (6, &[1, 2, 2], &[1, 2, 2]),
            (7, &[20, 10, 5], &[4, 2, 1]),
            (5, &[20, 10, 5], &[3, 1, 1]),
            (2, &[8, 3, 2], &[1, 1, 0]),
            (7, &[7, 2, 2], &[5, 1, 1]),
        ] {
            assert_eq!(by_capacity(amount, capacity), shares, "{amount} over {capacity:?}");
        }
        // Clusternet overflows here.
        assert_eq!(by_capacity(100_000, &[i64::from(i32::MAX), i64::from(i32::MAX)]), [50_000, 50_000]);
        assert_eq!(by_capacity(i64::MAX, &[i64::MAX, i64::MAX]).iter().map(|share| i128::from(*share)).sum::<i128>(), i128::from(i64::MAX));
    }

    #[test]
    fn filling_keeps_to_the_order() {
        assert_eq!(fill(7, &[3, 6, 9], &[2, 1, 0]), [0, 0, 7]);
        assert_eq!(fill(12, &[3, 6, 9], &[2, 1, 0]), [0, 3, 9]);
        assert_eq!(drain(4, &[3, 6, 9], &[0, 1, 2]), [3, 1, 0]);
    }
}
