import { apiCommands } from './api.ts'
import type { Command } from './arguments.ts'
import { auditCommands } from './audit.ts'
import { backupCommand, restoreCommand } from './backup.ts'
import { benchCommand } from './bench.ts'
import { configCheckCommand, configCommand } from './config.ts'
import { doctorCommand } from './doctor.ts'
import { healthCommand } from './health.ts'
import type { Group } from './help.ts'
import { identityCommands } from './identity.ts'
import { importCommand } from './import.ts'
import { keyCommands } from './key.ts'
import { limitCommand } from './limit.ts'
import { migrateCommand } from './migrate.ts'
import { namespaceCommands } from './namespace.ts'
import { permissionCommands } from './permission.ts'
import { roleCommands } from './role.ts'
import { rootKeyCommands } from './root-key.ts'
import { rootKeyRescueCommand } from './root-key-rescue.ts'
import { serveCommand } from './serve.ts'
import { usageCommand } from './usage.ts'
import { vaultResealCommand } from './vault-reseal.ts'
import { workspaceCommands } from './workspace.ts'

/** All commands, in the order of the help. */
export const GROUPS: readonly Group[] = [
  {
    title: 'Server',
    commands: [
      serveCommand,
      migrateCommand,
      backupCommand,
      restoreCommand,
      configCommand,
      configCheckCommand,
      doctorCommand,
      healthCommand,
      benchCommand,
    ],
  },
  { title: 'APIs and keys', commands: [...apiCommands, ...keyCommands, importCommand] },
  { title: 'Identities', commands: identityCommands },
  { title: 'Permissions and roles', commands: [...permissionCommands, ...roleCommands] },
  { title: 'Rate limits', commands: [limitCommand, ...namespaceCommands] },
  { title: 'Usage and audit log', commands: [usageCommand, ...auditCommands] },
  {
    title: 'Root keys and workspaces',
    commands: [...rootKeyCommands, rootKeyRescueCommand, ...workspaceCommands, vaultResealCommand],
  },
]

export const COMMANDS: readonly Command[] = GROUPS.flatMap(({ commands }) => commands)
