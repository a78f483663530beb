import type { Endpoint } from '../../http/endpoint.ts'
import { keyRecordRoutes } from './key-routes.ts'
import { keyLinkRoutes } from './links.ts'
import { migrateKeysEndpoint } from './migrate-keys.ts'
import { verifyKeyEndpoint } from './verify-key.ts'

export const keyRoutes: Endpoint[] = [
  ...keyRecordRoutes,
  ...keyLinkRoutes,
  migrateKeysEndpoint,
  verifyKeyEndpoint,
]
