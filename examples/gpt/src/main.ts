console.log('The GPT example is not here yet.')
