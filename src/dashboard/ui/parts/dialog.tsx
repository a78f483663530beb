import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'
import { Button, CopyButton } from './controls.tsx'
import { Icon } from './icons.tsx'

/** A modal dialog of the browser: it keeps the focus, makes the page inert, and gives the focus back. */
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
  const id = useId()
  useEffect(() => {
    ref.current?.showModal()
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
      onClose={onClose}
    >
      <header>
        <h2 id={id}>{title}</h2>
        {!isSticky && (
          <Button kind="quiet" onClick={onClose}>
            <Icon name="cross" /> Close
          </Button>
        )}
      </header>
      {children}
    </dialog>
  )
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
