import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Button, CopyButton, Failure, Field, useAction } from './controls.tsx'
import { Icon, type IconName } from './icons.tsx'

/** A modal dialog of the browser: its first field has the focus, the page is inert, and the focus is given back. */
export function Dialog({
  title,
  children,
  onClose,
  isSticky = false,
  isWide = false,
}: {
  title: string
  children: ComponentChildren
  onClose: () => void
  /** Esc does not close it: what it shows is not shown again. */
  isSticky?: boolean
  /** Two columns, where there is room. */
  isWide?: boolean
}) {
  const ref = useRef<HTMLDialogElement>(null)
  const isGone = useRef(false)
  const id = useId()
  // Before the next key is read: what is typed right after belongs to the first field.
  useLayoutEffect(() => {
    const dialog = ref.current
    dialog?.showModal()
    dialog?.querySelector<HTMLElement>('form :is(input, select, textarea)')?.focus()
    return () => {
      // Browsers give the focus back when a dialog is closed, but not when it is only removed.
      isGone.current = true
      dialog?.close()
      requestAnimationFrame(focusHeadingIfLost)
    }
  }, [])
  return (
    <dialog
      ref={ref}
      class={isWide ? 'dialog wide' : 'dialog'}
      aria-labelledby={id}
      onKeyDown={(event) => {
        // Browsers close a dialog at the second Esc whatever `cancel` says.
        if (isSticky && event.key === 'Escape') event.preventDefault()
      }}
      onCancel={(event) => {
        if (isSticky) event.preventDefault()
      }}
      onClose={() => {
        if (!isGone.current) onClose()
      }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {!isSticky && (
          <Button kind="quiet" icon="cross" onClick={onClose}>
            Close
          </Button>
        )}
      </header>
      {children}
    </dialog>
  )
}

/** After a dialog whose opener is gone too, such as the button of a row that was deleted. */
function focusHeadingIfLost(): void {
  if (document.activeElement === document.body) document.querySelector('h1')?.focus({ preventScroll: true })
}

/** A secret that the server has shown for the only time. */
export function SecretDialog({
  title,
  secret,
  fileName,
  about,
  onClose,
}: {
  title: string
  secret: string
  fileName: string
  about: ComponentChildren
  onClose: () => void
}) {
  return (
    <Dialog title={title} onClose={onClose} isSticky>
      <p>{about}</p>
      <p class="secret mono">{secret}</p>
      <p class="notice warn">
        <Icon name="warning" />
        <span>It is shown only now. The server keeps only its hash.</span>
      </p>
      <footer>
        <CopyButton text={secret} />
        <a
          class="button plain"
          download={fileName}
          href={`data:text/plain;charset=utf-8,${encodeURIComponent(`${secret}\n`)}`}
        >
          <Icon name="download" />
          <span>Download</span>
        </a>
        <Button kind="main" icon="check" onClick={onClose}>
          I have it
        </Button>
      </footer>
    </Dialog>
  )
}

/** A dialog with one form. Its failure stands in it, in the server's words. */
export function FormDialog({
  title,
  button,
  busy = button,
  icon,
  isDanger = false,
  staysOpen = false,
  lacking = null,
  run,
  onClose,
  children,
}: {
  title: string
  /** What the button does: "Rotate key". */
  button: string
  /** What it says meanwhile: "Rotating…". */
  busy?: string
  icon?: IconName
  isDanger?: boolean
  /** It shows what came of it, and may be done again. */
  staysOpen?: boolean
  /** Why it cannot be done yet; null = it can. */
  lacking?: string | null
  /** Does it; the dialog closes after it, if it does not stay open. */
  run: () => Promise<void>
  onClose: () => void
  children: ComponentChildren
}) {
  const { start, isBusy, failed } = useAction(async () => {
    await run()
    if (!staysOpen) onClose()
  })
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault()
          if (lacking === null) void start()
        }}
      >
        {children}
        {failed !== null && <Failure failed={failed} />}
        <footer>
          {!staysOpen && <Button onClick={onClose}>Cancel</Button>}
          <Button
            type="submit"
            kind={isDanger ? 'danger' : 'main'}
            isBusy={isBusy}
            lacking={lacking}
            {...(icon !== undefined && { icon })}
          >
            {isBusy ? busy : button}
          </Button>
        </footer>
      </form>
    </Dialog>
  )
}

/** Asks once, before something that cannot be taken back. */
export function Confirm({
  typed = null,
  children,
  ...rest
}: {
  title: string
  button: string
  busy?: string
  /** A text that must be typed, as what is asked for is in use; null = none. */
  typed?: string | null
  run: () => Promise<void>
  onClose: () => void
  children: ComponentChildren
}) {
  const [text, setText] = useState('')
  const isTyped = typed === null || text.trim() === typed.trim()
  return (
    <FormDialog {...rest} isDanger lacking={isTyped ? null : 'type the text above first'}>
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
    </FormDialog>
  )
}
