/**
 * Several processes: importing this connects `mx.distributed` with the other processes of the job, once a program asks for a group.
 */
import "./kernels"

export { type CommunicatorBackend, communicatorBackends, type Job, registerCommunicators } from "./backends"
export type { Communicator, Work } from "./communicators"
export { leave } from "./connect"
export { setTimeLimit } from "./job"
