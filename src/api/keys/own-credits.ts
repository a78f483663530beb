import { ApiError } from '../../errors.ts'
import type { KeyRow } from './store.ts'

/** @throws ApiError PRECONDITION_FAILED for a rerolled key, which spends what its successor has. */
export function requireOwnCredits({ id, creditsOf }: Pick<KeyRow, 'id' | 'creditsOf'>): void {
  if (creditsOf !== null)
    throw new ApiError(
      'PRECONDITION_FAILED',
      `key ${id} was rerolled and spends the credits of its successor ${creditsOf}: change them there`,
    )
}
