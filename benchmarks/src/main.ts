console.log('The benchmarks are not here yet.')
