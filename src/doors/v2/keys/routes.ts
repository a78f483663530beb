import type { Endpoint } from '../../http/endpoint.ts'
import { verifyKeyEndpoint } from './verify-key.ts'

export const keyRoutes: Endpoint[] = [verifyKeyEndpoint]
