"""Speed, measured side by side in one run: ratios are the result, absolute times only orient."""
