import { ApiError } from '../../errors.ts'
import type { Services } from '../parts.ts'
import { METHODS_MAX } from './get-status.ts'
import type { CallFigures, StatusSample } from './status-history.ts'

export type HistorySample = Omit<StatusSample, 'all' | 'methods'> & CallFigures

/**
 * The last three hours of this process by minute, oldest first. For operators.
 * @param path Calls are of this method alone; null = of all.
 * @returns `methods`: those that were called in these hours, most called first.
 * @throws ApiError PRECONDITION_FAILED when TOLLGATE_DASHBOARD is off: nothing is kept then.
 */
export async function getHistory(
  { statusHistory }: Pick<Services, 'statusHistory'>,
  path: string | null,
): Promise<{ samples: HistorySample[]; methods: string[] }> {
  if (statusHistory === null)
    throw new ApiError('PRECONDITION_FAILED', 'this server keeps no history: TOLLGATE_DASHBOARD is off')
  const kept = await statusHistory()
  const calls = new Map<string, number>()
  for (const { methods } of kept)
    for (const each of methods) calls.set(each.path, (calls.get(each.path) ?? 0) + each.calls)
  return {
    samples: kept.map(({ all, methods, ...sample }) => {
      const { p50Ms, p99Ms, ...counts } =
        path === null ? all : (methods.find((each) => each.path === path) ?? NONE)
      return { ...sample, calls: counts.calls, failed: counts.failed, p50Ms, p99Ms }
    }),
    methods: [...calls]
      .sort(([, a], [, b]) => b - a)
      .slice(0, METHODS_MAX)
      .map(([name]) => name),
  }
}

const NONE: CallFigures = { calls: 0, failed: 0, p50Ms: null, p99Ms: null }
