import type { KeyChange, KeyRow } from './store.ts'

/** Credits that a key gets again and again. */
export type Refill = {
  amount: number
  /** Day of the month, in a shorter month its last day; null = daily. */
  day: number | null
  /** `add` adds the amount to the credits left. `set` sets them to the amount, if fewer are left. */
  mode: 'add' | 'set'
}

export const refillOf = ({
  refillAmount,
  refillDay,
  refillSets,
}: Pick<KeyRow, 'refillAmount' | 'refillDay' | 'refillSets'>): Refill | null =>
  refillAmount === null ? null : { amount: refillAmount, day: refillDay, mode: refillSets ? 'set' : 'add' }

/** A refill in an audit event. */
export const refillChange = (refill: Refill | null) =>
  refill && {
    amount: refill.amount,
    ...(refill.day === null ? {} : { refillDay: refill.day }),
    ...(refill.mode === 'set' ? { mode: refill.mode } : {}),
  }

/** @param lastAt Unix ms of the last refill; null = none yet. */
export const refillColumns = (
  refill: Refill | null,
  lastAt: number | null,
): Required<Pick<KeyChange, 'refill_amount' | 'refill_day' | 'refill_sets' | 'last_refill_at'>> => ({
  refill_amount: refill === null ? null : refill.amount,
  refill_day: refill === null ? null : refill.day,
  refill_sets: refill !== null && refill.mode === 'set',
  last_refill_at: refill === null ? null : lastAt,
})
