/** A GPU as the default device of what is imported after this. */
import "@lazuli/backend-cuda"
import * as mx from "@lazuli/core"

mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)
