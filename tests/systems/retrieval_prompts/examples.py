"""The source's own examples (appendix A): text, correct and acceptable answers."""

EXAMPLES = {
    "equations": (
        """\
b = 2
c = 3
d = 0
a = 1
e = b
g = a
h = d
f = c
k = e
i = f
l = g
j = h
n = k
p = l
o = i
m = j
q = n
s = p
r = o
t = m
What is the value of s? Say directly only the numeric value, without any other words.""",
        "1",
        "0, 1, 2, 3",
    ),
    "lives-with": (
        """\
Charlie lives in Cairo
David lives in Delhi
Alice lives in Berlin
Bob lives in Amsterdam
Henry lives with David
Eve lives with Charlie
Frank lives with Alice
Grace lives with Bob
Kate lives with Grace
Larry lives with Frank
Jack lives with Eve
Isabelle lives with Henry
Mary lives with Jack
Olivia lives with Isabelle
Nick lives with Kate
Peter lives with Larry
Rose lives with Peter
Queen lives with Nick
Tom lives with Olivia
Sam lives with Mary
Where does Rose live? Say directly only the name of the city, without any other words.""",
        "Berlin",
        "Amsterdam, Berlin, Cairo, Delhi",
    ),
    "kingdoms": (
        """\
Bob lives in Silvania.
Alice lives in Novaria.
Charlie lives in Aurora.
David lives in Florinia.
Silvanians believe in celestianism.
Novarians believe in harmonianism.
Aurorans believe in elysianism.
Florinians believe in luminism.
Luminists eat beef.
Elysianists eat pork.
Harmonianists eat lamb.
Celestianists eat chicken.
Beef contains Astralyte.
Chicken contains Nephryon.
Lamb contains Zephyrium.
Pork contains Virellium.
Zephyrium causes Chronogy.
Astralyte causes Aetherflux.
Virellium causes Somnosis.
Nephryon causes Synthemia.
Who has Chronogy? Say directly the name without other words.""",
        "Alice",
        "Alice, Bob, Charlie, David",
    ),
    "functions": (
        """\
a(0) = 3
a(1) = 2
a(2) = 0
a(3) = 1
b(0) = 1
b(1) = 3
b(2) = 2
b(3) = 0
c(0) = 1
c(1) = 0
c(2) = 3
c(3) = 2
d(0) = 1
d(1) = 0
d(2) = 2
d(3) = 3
e = b
f = a
g = c
h = d
i = 0
j = 2
k = 3
l = 1
What is the value of f(i)? Say directly only the numeric value, without any other words.""",
        "3",
        "0, 1, 2, 3",
    ),
    "relatives": (
        """\
Penny lives in Canada.
Lily lives in Brazil.
Isabelle lives in France.
Cathy lives in Kenya.
George lives in Italy.
Adam lives in Mexico.
Kevin lives in Peru.
Ed lives in Laos.
Hank lives in Germany.
Mike lives in Japan.
Jane lives in England.
Fred lives in Hungary.
Dana lives in Norway.
Olivia lives in Qatar.
Bob lives in Denmark.
Nancy lives in Argentina.
Johns mother is Jane.
Johns sister is Olivia.
Johns father is Ed.
Johns brother is Mike.
Chriss mother is Penny.
Chriss sister is Dana.
Chriss father is Adam.
Chriss brother is George.
Dianas mother is Nancy.
Dianas sister is Isabelle.
Dianas father is Hank.
Dianas brother is Bob.
Eves mother is Lily.
Eves sister is Cathy.
Eves father is Fred.
Eves brother is Kevin.
Doctors live with their brothers.
Lawyers live with their mothers.
Teachers live with their sisters.
Engineers live with their fathers.
John works as a doctor.
Chris works as an engineer.
Diana works as a teacher.
Eve works as a lawyer.
Where does Eve live? Say directly only the name, without any other words.""",
        "Brazil",
        "Argentina, Brazil, Canada, Denmark, England, France, Germany, Hungary, Italy, Japan, Kenya, Laos, Mexico, "
        "Norway, Peru, Qatar",
    ),
}
