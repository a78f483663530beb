/**
 * Why a file or folder cannot be used, in words for people. The runtime's message names the system call, and lacks the path
 * of a folder that was read as a file.
 */
export function fileProblem(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  return PROBLEMS['code' in cause ? String(cause.code) : ''] ?? cause.message
}

const PROBLEMS: Record<string, string> = {
  ENOENT: 'the file or its folder does not exist',
  EISDIR: 'it is a folder, not a file',
  ENOTDIR: 'a part of its path is a file, not a folder',
  EEXIST: 'a file with this name already exists',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'it is on a read-only file system',
  ENOSPC: 'the disk is full',
}
