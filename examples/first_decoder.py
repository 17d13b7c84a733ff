"""The shortest decoder: correlate with every codeword, then round."""

import aircomp
from aircomp.decoders.rounding import round_to_sum


class MatchedFilter:
    def __init__(self, codebook):
        self.codebook = codebook  # one codeword in each row; devices send these

    def decode(self, received, popularity, *, num_active=None, **side_information):
        num_active = 10.0 if num_active is None else num_active  # a guess; a good decoder estimates it
        soft = (received @ self.codebook.T).clamp(min=0)  # [slots, codewords]
        counts = round_to_sum(soft, round(num_active))  # integers, every row sums to num_active
        return aircomp.Decoded(counts, soft, num_active, received.new_zeros(len(received)))


if __name__ == "__main__":
    codebook = aircomp.CommunicationLayer.load().codebook
    own = aircomp.simulate("digits", decoder=MatchedFilter(codebook), snr_db=10.0, rounds=10)
    ours = aircomp.simulate("digits", uplink="gamp-net", snr_db=10.0, rounds=10)
    for name, run in (("matched filter", own), ("gamp-net", ours)):
        print(f"{name:15} count accuracy {run.row['count_accuracy']:.2f}, test accuracy {run.test_accuracy:.2f}")
