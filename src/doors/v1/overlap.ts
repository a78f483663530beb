import { Type } from '@sinclair/typebox'
import { DURATION_MS_MAX } from '../../lib/bounds.ts'

/** `overlap` of keys.rerollKey and rootKeys.rerollRootKey. */
export const Overlap = Type.Integer({
  minimum: 0,
  maximum: DURATION_MS_MAX,
  description:
    'How long the old one still works, milliseconds, rounded up to a full minute; 0 = it is refused at once. An end that it already has only gets earlier.',
})
