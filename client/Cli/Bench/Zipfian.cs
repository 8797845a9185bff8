namespace KvCluster.Cli.Bench;

/// <summary>
/// Numbers from 0 on, of which a smaller one comes more often: the n-th with a probability that is proportional to 1 / n^0.99, the constant of YCSB. By the
/// method of Gray et al., "Quickly Generating Billion-Record Synthetic Databases", 1994. Any thread.
/// </summary>
internal sealed class Zipfian
{
    private const double Theta = 0.99;
    private const long SummedMax = 10_000;

    private readonly long _count;
    private readonly double _zeta;
    private readonly double _eta;

    /// <param name="count">How many numbers there are.</param>
    public Zipfian(long count)
    {
        _count = count;
        _zeta = Zeta(count);
        _eta = (1 - Math.Pow(2.0 / count, 1 - Theta)) / (1 - (Zeta(2) / _zeta));
    }

    /// <summary>The number that a random one from 0 to less than 1 stands for.</summary>
    public long NumberOf(double random)
    {
        var scaled = random * _zeta;
        if (scaled < 1)
            return 0;
        if (scaled < 1 + Math.Pow(0.5, Theta))
            return 1;
        return Math.Min(_count - 1, (long)(_count * Math.Pow((_eta * random) - _eta + 1, 1 / (1 - Theta))));
    }

    /// <summary>
    /// The sum of 1 / n^0.99 of the first numbers. That of more than ten thousand is completed by the integral (Euler and Maclaurin), which is right to more
    /// digits than matter here, because a hundred million powers take seconds.
    /// </summary>
    internal static double Zeta(long count)
    {
        var summed = Math.Min(count, SummedMax);
        var sum = 0.0;
        for (var number = 1L; number <= summed; number++)
            sum += Math.Pow(number, -Theta);
        return summed == count ? sum
            : sum + ((Math.Pow(count, 1 - Theta) - Math.Pow(summed, 1 - Theta)) / (1 - Theta)) + ((Math.Pow(count, -Theta) - Math.Pow(summed, -Theta)) / 2);
    }
}
