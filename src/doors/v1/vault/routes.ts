import { authenticateOperator } from '../../../api/root-keys/authorize.ts'
import { resealVault } from '../../../api/vault/reseal-vault.ts'
import type { Endpoint } from '../../http/endpoint.ts'
import { post } from '../endpoint.ts'
import { ResealVaultBody, ResealVaultReply } from './schema.ts'

export const vaultRoutes: Endpoint[] = [
  post(
    '/v1/vault.reseal',
    {
      input: ResealVaultBody,
      reply: ResealVaultReply,
      summary: 'Seal recoverable keys with the first vault key',
      errors: ['PRECONDITION_FAILED'],
    },
    async (services, call) => await resealVault(services, await authenticateOperator(services, call)),
  ),
]
