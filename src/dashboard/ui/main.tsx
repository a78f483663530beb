import { render } from 'preact'
import { App, failedStart } from './app.tsx'
import { startRouting } from './route.ts'
import { readSession, session } from './session.ts'
import { startTheme } from './theme.ts'

startTheme()
startRouting()
const root = document.getElementById('app')
if (root !== null) render(<App />, root)
readSession().catch((cause: unknown) => {
  if (session.value === null) failedStart.value = cause instanceof Error ? cause : new Error(String(cause))
})
