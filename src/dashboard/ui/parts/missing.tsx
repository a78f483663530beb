import type { ComponentChildren } from 'preact'

/** What a screen shows whose thing does not exist. @param props.children Where to go instead. */
export const Missing = ({
  kind,
  id,
  children,
}: {
  kind: string
  id: string
  children: ComponentChildren
}) => (
  <p class="empty">
    There is no {kind} <code class="wrap">{id}</code> in this workspace, or it is deleted. {children}
  </p>
)
