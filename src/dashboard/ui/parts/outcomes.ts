import type { GetOverviewReply } from '../../../doors/v1/analytics/schema.ts'

export type OutcomeField = Exclude<
  keyof GetOverviewReply['hours'][number],
  'time' | 'total' | 'notFound' | 'unauthorized'
>

/** Each outcome with its words, its code and its place among the colours, which is the same on every screen. */
export const OUTCOMES: readonly { field: OutcomeField; name: string; code: string; series: string }[] = [
  { field: 'valid', name: 'Valid', code: 'VALID', series: 's1' },
  { field: 'rateLimited', name: 'Rate limited', code: 'RATE_LIMITED', series: 's2' },
  { field: 'usageExceeded', name: 'No credits', code: 'USAGE_EXCEEDED', series: 's3' },
  { field: 'insufficientPermissions', name: 'Missing right', code: 'INSUFFICIENT_PERMISSIONS', series: 's4' },
  { field: 'disabled', name: 'Disabled', code: 'DISABLED', series: 's5' },
  { field: 'forbidden', name: 'Forbidden', code: 'FORBIDDEN', series: 's5 striped' },
  { field: 'expired', name: 'Expired', code: 'EXPIRED', series: 's6' },
]
