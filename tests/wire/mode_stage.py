# SPDX-License-Identifier: Apache-2.0
"""A stage with a service of every mode, family and protocol."""

import copy

from tests.lab.mode_table import ModeHosts, config
from tests.lab.steelyard import Steelyard
from tests.wire.stage import Stage


class ModeStage(Stage):
    def start(self, **options):
        self.hosts = ModeHosts(self.lab)
        self.hosts.start()
        made = config(self.lab.network)
        self.steelyard = Steelyard(self.lab, made, workers=self.workers, **options)
        self.default = copy.deepcopy(self.steelyard.config)
        self.steelyard.start()
        self.steelyard.wait_all_up()

    def __exit__(self, *error):
        self.hosts.close()
        super().__exit__(*error)
