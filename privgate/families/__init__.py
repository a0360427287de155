"""What a model would be without a person: engines that propose, theorems that pose cases to the kernel."""
