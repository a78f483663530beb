import { ApiError } from '../../errors.ts'
import type { Recall } from '../../recent/recent.ts'
import type { Services } from '../parts.ts'

export type RecallServices = Pick<Services, 'recall'>

/** @throws ApiError PRECONDITION_FAILED when this server remembers nothing. */
export function requireRecall({ recall }: RecallServices): Recall {
  if (recall === null)
    throw new ApiError('PRECONDITION_FAILED', 'this server remembers no events: TOLLGATE_DASHBOARD is off')
  return recall
}
