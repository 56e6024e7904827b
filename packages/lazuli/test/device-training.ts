/** The training of packages/distributed/test/training.ts on ranks with a GPU each. */
import "./first-gpu"
import "../../distributed/test/training"
