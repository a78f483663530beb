import type { Endpoint } from '../../http/endpoint.ts'
import { keyRecordRoutes } from './key-routes.ts'
import { verifyKeyEndpoint } from './verify-key.ts'

export const keyRoutes: Endpoint[] = [...keyRecordRoutes, verifyKeyEndpoint]
