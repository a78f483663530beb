import type { Endpoint } from '../http/endpoint.ts'
import { analyticsRoutes } from './analytics/routes.ts'
import { apiRoutes } from './apis/routes.ts'
import { identityRoutes } from './identities/routes.ts'
import { keyRoutes } from './keys/routes.ts'
import { livenessRoutes } from './liveness.ts'
import { permissionRoutes } from './permissions/routes.ts'
import { ratelimitRoutes } from './ratelimit/routes.ts'

/** All endpoints of the v2 API, in the order of its description. */
export const v2Routes: readonly Endpoint[] = [
  ...apiRoutes,
  ...keyRoutes,
  ...identityRoutes,
  ...permissionRoutes,
  ...ratelimitRoutes,
  ...analyticsRoutes,
  ...livenessRoutes,
]
