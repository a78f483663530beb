import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { Button, Failure, Field, useAction } from './controls.tsx'
import { Dialog } from './dialog.tsx'

/** Asks once, before something that cannot be taken back. */
export function Confirm({
  title,
  children,
  button,
  busy,
  typed = null,
  run,
  onClose,
}: {
  title: string
  children: ComponentChildren
  /** What the button does: "Delete key". */
  button: string
  /** What it says meanwhile: "Deleting…". */
  busy: string
  /** A text that must be typed, as what is asked for is in use; null = none. */
  typed?: string | null
  run: () => Promise<void>
  onClose: () => void
}) {
  const [text, setText] = useState('')
  const { start, isBusy, failed } = useAction(run)
  const isMissing = typed !== null && text.trim() !== typed.trim()
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault()
          if (!isMissing) void start()
        }}
      >
        {children}
        {typed !== null && (
          <Field
            label={`Type “${typed}” to confirm`}
            value={text}
            onInput={setText}
            autoComplete="off"
            isMono
          />
        )}
        {failed !== null && <Failure failed={failed} />}
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            kind="danger"
            isBusy={isBusy}
            lacking={isMissing ? 'type the text above first' : null}
          >
            {isBusy ? busy : button}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}
