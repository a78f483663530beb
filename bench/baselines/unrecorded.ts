import { readConfig } from '../../src/config.ts'
import { startServer } from '../../src/server.ts'

/** The whole server, but for a recorder that takes no verification: what recording costs is the difference. */
const server = await startServer(readConfig())
server.deps.usage.recordVerification = () => {}
process.on('SIGTERM', () => void server.stop().then(() => process.exit(0)))
console.log(`Tollgate listens on ${server.url}`)
